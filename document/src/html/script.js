"use strict";
(function () {
  // Tables that sort by a column.
  document.querySelectorAll("table.sortable").forEach(function (table) {
    var body = table.tBodies[0];
    var heads = Array.from(table.querySelectorAll("th.sort"));
    // A column of figures has values; a row without one comes last in it.
    var key = function (row, column, figures) {
      var cell = row.cells[column];
      if (!figures) { return cell ? cell.textContent : ""; }
      return cell && cell.dataset.v !== undefined ? parseFloat(cell.dataset.v) : -Infinity;
    };
    heads.forEach(function (head) {
      head.addEventListener("click", function () {
        var column = Number(head.dataset.column);
        var down = head.classList.contains("down") ? false : head.classList.contains("up") ? true : column !== 0;
        heads.forEach(function (h) { h.classList.remove("up", "down"); h.removeAttribute("aria-sort"); });
        head.classList.add(down ? "down" : "up");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        var rows = Array.from(body.rows);
        var figures = rows.some(function (row) { return row.cells[column] && row.cells[column].dataset.v !== undefined; });
        rows.sort(function (a, b) {
          var x = key(a, column, figures), y = key(b, column, figures);
          var order = figures ? (x > y) - (x < y) : x.localeCompare(y);
          return down ? -order : order;
        });
        rows.forEach(function (row) { body.appendChild(row); });
      });
    });
  });

  // Rows whose name holds what is typed above their table.
  document.querySelectorAll("input.filter").forEach(function (filter) {
    var table = filter.closest(".table").querySelector("table");
    filter.addEventListener("input", function () {
      var wanted = filter.value.toLowerCase();
      Array.from(table.tBodies[0].rows).forEach(function (row) {
        row.hidden = row.cells[0].textContent.toLowerCase().indexOf(wanted) < 0;
      });
    });
  });

  // Trees: rows stand in display order, so a branch is the rows after its head that are deeper.
  document.querySelectorAll("table.tree").forEach(function (tree) {
    var rows = Array.from(tree.tBodies[0].rows);
    var update = function () {
      var closed = Infinity;
      rows.forEach(function (row) {
        var depth = Number(row.dataset.depth);
        if (depth <= closed) { closed = Infinity; }
        row.classList.toggle("hidden", depth > closed);
        var twist = row.querySelector("button.twist");
        if (depth <= closed && twist && twist.getAttribute("aria-expanded") === "false") { closed = Math.min(closed, depth); }
      });
    };
    var set = function (open) {
      rows.forEach(function (row) {
        var twist = row.querySelector("button.twist");
        if (twist) { twist.setAttribute("aria-expanded", String(open(Number(row.dataset.depth)))); }
      });
      update();
    };
    tree.addEventListener("click", function (event) {
      var row = event.target.closest("tr.parent");
      var twist = row && row.querySelector("button.twist");
      if (twist) {
        twist.setAttribute("aria-expanded", String(twist.getAttribute("aria-expanded") === "false"));
        update();
      }
    });
    var buttons = tree.closest(".table").querySelector(".buttons");
    buttons.querySelector(".expand").addEventListener("click", function () { set(function () { return true; }); });
    buttons.querySelector(".collapse").addEventListener("click", function () { set(function () { return false; }); });
    if (rows.length > 60) { set(function (depth) { return depth < 2; }); }
  });
})();
