//! One item of a source as lines of a list: its head, then its public parts. What is hidden from documentation is left out.

use quote::ToTokens;
use syn::parse::ParseStream;
use syn::{Attribute, Fields, Ident, Item, LitStr, Token, TraitItem, Type, Visibility};

pub(crate) fn head(item: &Item) -> (&[Attribute], Option<&Visibility>) {
    match item {
        Item::Const(i) => (&i.attrs, Some(&i.vis)),
        Item::Enum(i) => (&i.attrs, Some(&i.vis)),
        Item::Fn(i) => (&i.attrs, Some(&i.vis)),
        Item::Mod(i) => (&i.attrs, Some(&i.vis)),
        Item::Static(i) => (&i.attrs, Some(&i.vis)),
        Item::Struct(i) => (&i.attrs, Some(&i.vis)),
        Item::Trait(i) => (&i.attrs, Some(&i.vis)),
        Item::Type(i) => (&i.attrs, Some(&i.vis)),
        Item::Use(i) => (&i.attrs, Some(&i.vis)),
        Item::Impl(i) => (&i.attrs, None),
        Item::Macro(i) => (&i.attrs, None),
        _ => (&[], None),
    }
}

pub(crate) fn is_hidden(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|a| text(a).contains("doc(hidden)"))
}

/// Name and lines of a record that `record!` declares: `[$] each_name Name, Kind, Rows { field: Type => Cells, … }`. `None` for
/// another macro of that name.
pub(crate) fn record(declared: &syn::ItemMacro) -> Option<(String, Vec<String>)> {
    let parser = |input: ParseStream<'_>| {
        if input.peek(syn::token::Bracket) {
            let dollar;
            syn::bracketed!(dollar in input);
            dollar.parse::<Token![$]>()?;
            input.parse::<Ident>()?;
        }
        Attribute::parse_outer(input)?;
        let name = input.parse::<Ident>()?.to_string();
        while input.parse::<Option<Token![,]>>()?.is_some() {
            input.parse::<Ident>()?;
        }
        let body;
        syn::braced!(body in input);
        let mut lines = vec!["#[non_exhaustive] struct".to_string()];
        while !body.is_empty() {
            Attribute::parse_outer(&body)?;
            let field = body.parse::<Ident>()?;
            body.parse::<Token![:]>()?;
            lines.push(format!("{field}: {}", text(&body.parse::<Type>()?)));
            // What makes an option of it.
            if body.peek(syn::token::Brace) {
                body.step(|at| at.token_tree().map(|(_, rest)| ((), rest)).ok_or_else(|| at.error("a brace")))?;
                continue;
            }
            body.parse::<Token![=>]>()?;
            body.parse::<Ident>()?;
            body.parse::<Option<LitStr>>()?;
            body.parse::<Token![,]>()?;
        }
        Ok((name, lines))
    };
    declared.mac.parse_body_with(parser).ok()
}

/// Module and constants that `keys!` declares: `module { NAME: Type = "key"; … }`. `None` for another macro of that name.
pub(crate) fn keys(declared: &syn::ItemMacro) -> Option<(String, Vec<(String, String)>)> {
    let parser = |input: ParseStream<'_>| {
        Attribute::parse_outer(input)?;
        let module = input.parse::<Ident>()?.to_string();
        let body;
        syn::braced!(body in input);
        let mut all = Vec::new();
        while !body.is_empty() {
            Attribute::parse_outer(&body)?;
            let name = body.parse::<Ident>()?.to_string();
            body.parse::<Token![:]>()?;
            let of = text(&body.parse::<Type>()?);
            body.parse::<Token![=]>()?;
            let key = body.parse::<LitStr>()?.value();
            body.parse::<Token![;]>()?;
            all.push((name, format!("const Key<{of}> = {key:?}")));
        }
        Ok((module, all))
    };
    declared.mac.parse_body_with(parser).ok()
}

/// Name and lines of a definition: its head, then its public parts.
pub(crate) fn definition(item: &Item) -> Option<(String, Vec<String>)> {
    Some(match item {
        Item::Const(i) => (i.ident.to_string(), vec![format!("const {}", text(&i.ty))]),
        Item::Static(i) => (i.ident.to_string(), vec![format!("static {}", text(&i.ty))]),
        Item::Fn(i) => (i.sig.ident.to_string(), vec![text(&i.sig)]),
        Item::Type(i) => (i.ident.to_string(), vec![format!("type {}", text(&i.ty))]),
        Item::Struct(i) => {
            let mut lines = vec![format!("struct{}", text(&i.generics))];
            lines.extend(fields(&i.fields, true));
            (i.ident.to_string(), lines)
        }
        Item::Enum(i) => {
            let mut lines = vec![format!("enum{}", text(&i.generics))];
            for variant in i.variants.iter().filter(|variant| !is_hidden(&variant.attrs)) {
                let fields = fields(&variant.fields, false).collect::<Vec<_>>().join(", ");
                lines.push(if fields.is_empty() {
                    variant.ident.to_string()
                } else {
                    format!("{} {{ {fields} }}", variant.ident)
                });
            }
            (i.ident.to_string(), lines)
        }
        Item::Trait(i) => {
            let bounds = text(&i.supertraits);
            let mut lines =
                vec![format!("trait{}{}{bounds}", text(&i.generics), if bounds.is_empty() { "" } else { ": " })];
            lines.extend(i.items.iter().filter_map(|item| match item {
                TraitItem::Fn(f) if !is_hidden(&f.attrs) => Some(text(&f.sig)),
                TraitItem::Type(t) => Some(format!("type {}", t.ident)),
                TraitItem::Const(c) => Some(format!("const {}: {}", c.ident, text(&c.ty))),
                _ => None,
            }));
            (i.ident.to_string(), lines)
        }
        _ => return None,
    })
}

fn fields(fields: &Fields, public_only: bool) -> impl Iterator<Item = String> {
    let shown = move |f: &syn::Field| !is_hidden(&f.attrs) && (!public_only || matches!(f.vis, Visibility::Public(_)));
    fields.iter().enumerate().filter(move |(_, f)| shown(f)).map(|(i, f)| {
        let name = f.ident.as_ref().map_or(i.to_string(), ToString::to_string);
        format!("{name}: {}", text(&f.ty))
    })
}

/// The feature that an item needs, in brackets.
pub(crate) fn feature(attributes: &[String]) -> String {
    let needs =
        attributes.iter().filter_map(|a| a.split_once("cfg(")).map(|(_, rest)| rest.trim_end_matches([']', ')', ' ']));
    let needs: Vec<String> = needs.map(|cfg| cfg.replace("feature = ", "").replace('"', "")).collect();
    if needs.is_empty() { String::new() } else { format!("[{}] ", needs.join(", ")) }
}

pub(crate) fn text(tokens: &impl ToTokens) -> String {
    let mut text = tokens.to_token_stream().to_string();
    for (from, to) in [
        (" :: ", "::"),
        (" < ", "<"),
        (" >", ">"),
        (" ,", ","),
        (" :", ":"),
        ("& ", "&"),
        (" (", "("),
        ("( ", "("),
        (" )", ")"),
    ] {
        text = text.replace(from, to);
    }
    text
}
