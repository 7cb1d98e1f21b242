//! Tables on a terminal.

use comfy_table::{Cell, CellAlignment, Color, ContentArrangement, LineStyle, Table, TableStyle};

const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// A table of printable cells, as wide as they are. Columns are numbers, but for those in `left`.
pub(super) fn text_table(header: &[&str], rows: Vec<Vec<String>>, left: &[usize], color: bool) -> String {
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled);
    if color {
        table.enforce_styling();
        table.set_header(header.iter().map(|text| Cell::new(text).fg(Color::DarkGrey)));
    } else {
        table.force_no_tty();
        table.set_header(header.to_vec());
    }
    table.add_rows(rows);
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((1, 1));
        if !left.contains(&at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}
