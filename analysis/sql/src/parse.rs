//! One statement that asks, and the tables that it names.

use super::query_error::{QueryError, wrong};
use datafusion::execution::SessionState;
use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, JoinConstraint, JoinOperator, Query, SelectItem, SetExpr, Statement as Sql,
    TableAlias, TableFactor, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::DuckDbDialect;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// Levels of nesting that a query may have.
const DEEPEST: usize = 100;

/// The statement of `sql`.
///
/// # Errors
/// When there is none, or several, or it is no query.
pub(super) fn statement(sql: &str) -> Result<Statement, QueryError> {
    let parser = DFParserBuilder::new(sql).with_dialect(&DuckDbDialect {}).with_recursion_limit(DEEPEST).build();
    let mut found = parser.and_then(|mut parser| parser.parse_statements()).map_err(wrong)?;
    let (Some(mut statement), None) = (found.pop_front(), found.pop_front()) else { return Err(QueryError::NotOne) };
    let only_reads = "; queries only read: SELECT, WITH, and the functions of docs/sql.md";
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
                return Err(QueryError::Query { why: "it does not ask".into(), hint: only_reads.into() });
            }
            Sql::Query(query) => {
                let _ = query.visit(&mut Tuples);
            }
            Sql::ShowTables { .. } | Sql::ShowColumns { .. } | Sql::ShowFunctions { .. } | Sql::ExplainTable { .. } => {
                return Err(QueryError::Query {
                    why: "it is no SELECT".into(),
                    hint: "; `SELECT * FROM columns` lists what is there".into(),
                });
            }
            _ => return Err(QueryError::Query { why: "it does not ask".into(), hint: only_reads.into() }),
        },
        Statement::Explain(of) if matches!(of.statement.as_ref(), Statement::Statement(of) if matches!(**of, Sql::Query(_))) =>
            {}
        _ => return Err(QueryError::Query { why: "it does not ask".into(), hint: only_reads.into() }),
    }
    Ok(statement)
}

/// Tables that a statement names, without those that it makes itself.
pub(super) fn tables(statement: &Statement, state: &SessionState) -> Result<BTreeSet<String>, QueryError> {
    let names = state.resolve_table_references(statement).map_err(wrong)?;
    Ok(names.iter().map(|name| name.table().to_string()).collect())
}

/// Rewrites `(a, b) IN (SELECT x, y …)`, which the engine does not know, as `EXISTS`.
///
/// They differ where a value is null: SQL leaves rows out of `NOT IN` then. A null on the left is taken care of; what the
/// query inside returns are numbers of steps and names of runs, which are never null.
///
/// A column of a join's `USING` is the left table's: inside `EXISTS` its name alone would not say which.
struct Tuples;

impl VisitorMut for Tuples {
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
        let Expr::InSubquery { expr: left, subquery, negated } = expr else { return ControlFlow::Continue(()) };
        let Expr::Tuple(left) = left.as_mut() else { return ControlFlow::Continue(()) };
        let (left, negated) = (std::mem::take(left), *negated);
        if let Some(exists) = exists(&left, subquery, negated) {
            *expr = exists;
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

fn exists(left: &[Expr], inside: &Query, negated: bool) -> Option<Expr> {
    const ALIAS: &str = "inside_of_in";
    // `SELECT 1 FROM (…) AS alias (c0, c1) WHERE c0 = a AND c1 = b`, of which the parts are put in.
    let names: Vec<Ident> = (0..left.len()).map(|at| Ident::new(format!("{ALIAS}_{at}"))).collect();
    let list = names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let frame = format!("SELECT 1 FROM (SELECT 1) AS {ALIAS} ({list})");
    let mut parsed = datafusion::sql::sqlparser::parser::Parser::parse_sql(&DuckDbDialect {}, &frame).ok()?;
    let Sql::Query(mut query) = parsed.pop()? else { return None };
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    let TableFactor::Derived { subquery, alias: Some(TableAlias { .. }), .. } = &mut select.from.first_mut()?.relation
    else {
        return None;
    };
    **subquery = inside.clone();
    debug_assert!(matches!(select.projection.first(), Some(SelectItem::UnnamedExpr(_))));
    let equal = |(name, value): (&Ident, &Expr)| Expr::BinaryOp {
        left: Box::new(Expr::CompoundIdentifier(vec![Ident::new(ALIAS), name.clone()])),
        op: BinaryOperator::Eq,
        right: Box::new(Expr::Nested(Box::new(value.clone()))),
    };
    let and = |a: Expr, b: Expr| Expr::BinaryOp { left: Box::new(a), op: BinaryOperator::And, right: Box::new(b) };
    select.selection = names.iter().zip(left).map(equal).reduce(and);
    let found = Expr::Exists { subquery: query, negated };
    if !negated {
        return Some(found);
    }
    let known = left.iter().map(|value| Expr::IsNotNull(Box::new(value.clone())));
    Some(Expr::Nested(Box::new(known.fold(found, and))))
}
