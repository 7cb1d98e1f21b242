//! One statement that asks, and the tables that it names.

use super::query_error::{QueryError, wrong};
use super::value::free;
use datafusion::execution::SessionState;
use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, ExactNumberInfo, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    JoinConstraint, JoinOperator, Query, SelectItem, SetExpr, Statement as Sql, TableAlias, TableFactor, UnaryOperator,
    Value, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::DuckDbDialect;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use std::collections::{BTreeSet, HashSet};
use std::ops::ControlFlow;

/// Levels of nesting that a query may have.
const DEEPEST: usize = 100;
/// Lists of pairs in a query.
const MOST_PAIRS: usize = 64;
/// Operators and keywords of a query: `1 + 1 + …` is as deep as it is long.
const LONGEST: usize = 2_000;

/// The statement of `sql`.
///
/// # Errors
/// When there is none, or several, or it is no query.
pub(super) fn statement(sql: &str) -> Result<Statement, QueryError> {
    check_length(sql)?;
    of_us(sql)
}

/// The same of a text of our own, which may be as long as it likes.
///
/// # Errors
/// When it is no query.
pub(super) fn of_us(sql: &str) -> Result<Statement, QueryError> {
    let parser = DFParserBuilder::new(sql).with_dialect(&DuckDbDialect {}).with_recursion_limit(DEEPEST).build();
    let mut found = parser.and_then(|mut parser| parser.parse_statements()).map_err(wrong)?;
    let (Some(mut statement), None) = (found.pop_front(), found.pop_front()) else { return Err(QueryError::NotOne) };
    let no_question = || {
        let hint = "; queries only read: SELECT, WITH, and the functions of docs/sql.md";
        Err(QueryError::Query { why: "it does not ask".into(), hint: hint.into() })
    };
    match &mut statement {
        Statement::Statement(of) => match of.as_mut() {
            Sql::Query(query)
                if !matches!(
                    *query.body,
                    SetExpr::Select(_)
                        | SetExpr::Query(_)
                        | SetExpr::SetOperation { .. }
                        | SetExpr::Values(_)
                        | SetExpr::Table(_)
                ) =>
            {
                return no_question();
            }
            Sql::Query(query) => rewrite(query),
            Sql::ShowTables { .. } | Sql::ShowColumns { .. } | Sql::ShowFunctions { .. } | Sql::ExplainTable { .. } => {
                return Err(QueryError::Query {
                    why: "it is no SELECT".into(),
                    hint: "; `SELECT * FROM columns` lists what is there".into(),
                });
            }
            _ => return no_question(),
        },
        Statement::Explain(of) => match of.statement.as_mut() {
            Statement::Statement(of) => match of.as_mut() {
                Sql::Query(query) => rewrite(query),
                _ => return no_question(),
            },
            _ => return no_question(),
        },
        _ => return no_question(),
    }
    Ok(statement)
}

/// Refuses what is too long: it would be too deep for a stack.
fn check_length(sql: &str) -> Result<(), QueryError> {
    let words = Tokenizer::new(&DuckDbDialect {}, sql)
        .tokenize()
        .map_err(|why| QueryError::Query { why: why.to_string(), hint: String::new() })?;
    if words.iter().filter(|word| can_nest(word)).count() > LONGEST {
        return Err(QueryError::Query {
            why: format!("it has more than {LONGEST} operators and words"),
            hint: "; write lists as `x IN (1, 2, …)`".into(),
        });
    }
    Ok(())
}

/// Whether a word of a query may make it deeper by one level.
fn can_nest(word: &Token) -> bool {
    !matches!(
        word,
        Token::Comma
            | Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::Whitespace(_)
            | Token::RParen
            | Token::EOF
    )
}

/// Makes what the engine understands differently, or not at all, the same as in the other engines.
fn rewrite(query: &mut Query) {
    // Before anything else, so that a column that has no name has what was written as its name.
    name_columns(query);
    let _ = query.visit(&mut Rewrites { pairs: MOST_PAIRS });
}

/// Names columns of an answer as they were written.
fn name_columns(query: &mut Query) {
    // Several selects together are called as the first one is.
    let mut body = query.body.as_mut();
    while let SetExpr::SetOperation { left, .. } = body {
        body = left;
    }
    let SetExpr::Select(select) = body else { return };
    let mut seen = HashSet::new();
    for item in &mut select.projection {
        match item {
            SelectItem::UnnamedExpr(Expr::Identifier(_) | Expr::CompoundIdentifier(_)) => {}
            SelectItem::UnnamedExpr(expr) => {
                let name = free(expr.to_string(), &mut seen);
                let expr = std::mem::replace(expr, Expr::Value(Value::Null.into()));
                *item = SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', name) };
            }
            SelectItem::ExprWithAlias { alias, .. } => {
                seen.insert(alias.value.clone());
            }
            _ => {}
        }
    }
}

/// Tables that a statement names, without those that it makes itself.
pub(super) fn tables(statement: &Statement, state: &SessionState) -> Result<BTreeSet<String>, QueryError> {
    let names = state.resolve_table_references(statement).map_err(wrong)?;
    Ok(names.iter().map(|name| name.table().to_string()).collect())
}

/// What the engine understands differently, or not at all:
///
/// - `a / b` is the quotient, and null where `b` is zero: the engine's own of whole numbers is whole, and of sums has four
///   digits.
/// - `(a, b) IN (SELECT x, y …)`, which the engine does not know, becomes `EXISTS`. They differ where a value is null: `NOT IN`
///   leaves out rows that may be equal to one with a null.
///
/// A column of a join's `USING` is the left table's: inside `EXISTS` its name alone would not say which.
///
/// A row of which a value on the left is null is in no list and not outside of one, also where SQL can tell: to look
/// through the list for each of them would take the product of their numbers.
struct Rewrites {
    /// Lists of pairs that may still be rewritten: one that is left out holds the query inside twice.
    pairs: usize,
}

impl VisitorMut for Rewrites {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let SetExpr::Select(select) = query.body.as_mut() else { return ControlFlow::Continue(()) };
        let ([from], Some(condition)) = (&select.from[..], select.selection.as_mut()) else {
            return ControlFlow::Continue(());
        };
        let shared: Vec<&Ident> = from.joins.iter().flat_map(|join| using(&join.join_operator)).collect();
        let table = match &from.relation {
            TableFactor::Table { alias: Some(alias), .. } | TableFactor::Derived { alias: Some(alias), .. } => {
                Some(alias.name.clone())
            }
            TableFactor::Table { name, .. } => name.0.last().and_then(|part| part.as_ident().cloned()),
            _ => None,
        };
        if let Some(table) = table.filter(|_| !shared.is_empty()) {
            qualify(condition, &table, &shared);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let (mut inner, is_not) = match &*expr {
            Expr::UnaryOp { op: UnaryOperator::Not, expr: inner } => (inner.as_ref(), true),
            other => (other, false),
        };
        while let Expr::Nested(within) = inner
            && is_not
        {
            inner = within;
        }
        if let Expr::InSubquery { expr: left, subquery, negated } = inner
            && let Expr::Tuple(left) = left.as_ref()
            && let Some(pairs) = self.pairs.checked_sub(1)
            && let Some(exists) = exists(left, subquery, *negated != is_not)
        {
            (self.pairs, *expr) = (pairs, exists);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::BinaryOp { left, op: BinaryOperator::Divide, right } = expr {
            let number = |inner: &mut Expr| Expr::Cast {
                kind: CastKind::Cast,
                expr: Box::new(Expr::Nested(Box::new(std::mem::replace(inner, Expr::Value(Value::Null.into()))))),
                data_type: DataType::Double(ExactNumberInfo::None),
                array: false,
                format: None,
            };
            **left = number(left);
            **right = unless_zero(number(right));
        }
        ControlFlow::Continue(())
    }
}

/// Names of columns that a join shares.
fn using(join: &JoinOperator) -> impl Iterator<Item = &Ident> {
    let of = match join {
        JoinOperator::Join(of) | JoinOperator::Inner(of) | JoinOperator::Left(of) | JoinOperator::LeftOuter(of) => {
            Some(of)
        }
        _ => None,
    };
    let names = of.into_iter().flat_map(|of| if let JoinConstraint::Using(names) = of { &names[..] } else { &[] });
    names.filter_map(|name| name.0.last()?.as_ident())
}

/// Names the table of these columns in the pairs that a condition looks up.
fn qualify(condition: &mut Expr, table: &Ident, shared: &[&Ident]) {
    match condition {
        Expr::BinaryOp { left, right, .. } => {
            qualify(left, table, shared);
            qualify(right, table, shared);
        }
        Expr::Nested(inner) | Expr::UnaryOp { expr: inner, .. } => qualify(inner, table, shared),
        Expr::InSubquery { expr, .. } => {
            let Expr::Tuple(parts) = expr.as_mut() else { return };
            for part in parts {
                if let Expr::Identifier(name) = part
                    && shared.iter().any(|of| of.value.eq_ignore_ascii_case(&name.value))
                {
                    *part = Expr::CompoundIdentifier(vec![table.clone(), name.clone()]);
                }
            }
        }
        _ => {}
    }
}

/// `nullif(value, 0)`.
fn unless_zero(value: Expr) -> Expr {
    let call =
        Parser::new(&DuckDbDialect {}).try_with_sql("nullif(NULL, 0)").and_then(|mut parser| parser.parse_expr());
    match call {
        Ok(Expr::Function(mut call)) => {
            if let FunctionArguments::List(list) = &mut call.args
                && let Some(first) = list.args.first_mut()
            {
                *first = FunctionArg::Unnamed(FunctionArgExpr::Expr(value));
            }
            Expr::Function(call)
        }
        _ => value,
    }
}

/// `(left…) IN (inside)`, or `NOT IN`, as `EXISTS`.
fn exists(left: &[Expr], inside: &Query, negated: bool) -> Option<Expr> {
    let and = |a: Expr, b: Expr| Expr::BinaryOp { left: Box::new(a), op: BinaryOperator::And, right: Box::new(b) };
    let or = |a: Expr, b: Expr| {
        Expr::Nested(Box::new(Expr::BinaryOp { left: Box::new(a), op: BinaryOperator::Or, right: Box::new(b) }))
    };
    let equal = |(column, value): (&Expr, &Expr)| Expr::BinaryOp {
        left: Box::new(column.clone()),
        op: BinaryOperator::Eq,
        right: Box::new(Expr::Nested(Box::new(value.clone()))),
    };
    let is_null = |column: &Expr| Expr::IsNull(Box::new(column.clone()));
    let same = exists_where(left.len(), inside, negated, |columns| columns.iter().zip(left).map(equal).reduce(and))?;
    if !negated {
        return Some(same);
    }
    // Rows with a null inside that may be equal to one: few, so that looking through all of them is cheap.
    let unknown = exists_where(left.len(), inside, true, |columns| {
        let any = columns.iter().map(is_null).reduce(or)?;
        let may_be = columns.iter().zip(left).map(|(column, value)| or(equal((column, value)), is_null(column)));
        Some(may_be.fold(any, and))
    })?;
    let known = left.iter().map(|value| Expr::IsNotNull(Box::new(value.clone())));
    Some(Expr::Nested(Box::new(known.fold(and(same, unknown), and))))
}

/// `EXISTS (SELECT 1 FROM (inside) WHERE …)`, of which the condition is made of the columns inside.
fn exists_where(
    columns: usize,
    inside: &Query,
    negated: bool,
    condition: impl FnOnce(&[Expr]) -> Option<Expr>,
) -> Option<Expr> {
    const ALIAS: &str = "inside_of_in";
    // `SELECT 1 FROM (…) AS alias (c0, c1)`, of which the parts are put in.
    let names: Vec<Ident> = (0..columns).map(|at| Ident::new(format!("{ALIAS}_{at}"))).collect();
    let list = names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let frame = format!("SELECT 1 FROM (SELECT 1) AS {ALIAS} ({list})");
    let mut parsed = Parser::parse_sql(&DuckDbDialect {}, &frame).ok()?;
    let Sql::Query(mut query) = parsed.pop()? else { return None };
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    let TableFactor::Derived { subquery, alias: Some(TableAlias { .. }), .. } = &mut select.from.first_mut()?.relation
    else {
        return None;
    };
    **subquery = inside.clone();
    let names: Vec<Expr> =
        names.into_iter().map(|name| Expr::CompoundIdentifier(vec![Ident::new(ALIAS), name])).collect();
    select.selection = condition(&names);
    Some(Expr::Exists { subquery: query, negated })
}
