//! Chat templates that only a process of their own can bound: honest ones are rendered in one, malicious ones end with
//! it.
#![allow(missing_docs, unsafe_code, reason = "a test that asks the system about its children")]

#[cfg(target_os = "linux")]
fn main() {
    use_without_offering();
    // In a rendering process, nothing after this runs.
    candlescope_models::chat::isolate();
    linux::honest_templates_are_rendered();
    linux::hostile_templates_end_alone();
    println!("test chat_apart ... ok");
}

#[cfg(not(target_os = "linux"))]
fn main() {}

/// Before `isolate` was called: harmless and trusted templates are rendered, others are refused with a remedy.
#[cfg(target_os = "linux")]
fn use_without_offering() {
    use candlescope_models::chat::{ChatTemplate, Message};
    if std::env::var_os("CANDLESCOPE_CHAT_RENDERER").is_some() {
        return;
    }
    let turn = [Message::new("user", "hi")];
    let with_variable = ChatTemplate::new("{% set x = messages[0].content %}{{ x ~ x }}", "", "");
    let refused = with_variable.render(&turn, true).unwrap_err().to_string();
    assert!(refused.contains("call `candlescope_models::chat::isolate()` first in `main`"), "{refused}");
    assert_eq!(with_variable.trusted().render(&turn, true).unwrap(), "hihi");
    let long =
        ChatTemplate::new("{{ bos_token }}", &"s".repeat(1_025), "").render(&turn, true).unwrap_err().to_string();
    assert!(long.contains("1025 bytes, more than the limit of 1024"), "{long}");
    let harmless = ChatTemplate::new("{% for m in messages %}{{ m.content ~ bos_token }}{% endfor %}", "<s>", "");
    assert_eq!(harmless.render(&turn, true).unwrap(), "hi<s>");
}

#[cfg(target_os = "linux")]
mod linux {
    use candlescope_models::chat::{ChatTemplate, Message};
    use std::time::{Duration, Instant};

    /// In the style of Llama 3's, with a variable, a slice and a filter.
    const LLAMA: &str = "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' \
        + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}\
        {% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}";
    /// Most memory of a rendering process, its program included.
    const CEILING: u64 = 512 << 20;

    pub(super) fn honest_templates_are_rendered() {
        let template = ChatTemplate::new(LLAMA, "<bos>", "");
        let turns = [Message::new("system", " Be \u{1b}[1m\"brief\" \u{0}. "), Message::new("user", "Hé\n")];
        let expected = "<bos><|start_header_id|>system<|end_header_id|>\n\nBe \u{1b}[1m\"brief\" \u{0}.<|eot_id|>\
                        <|start_header_id|>user<|end_header_id|>\n\nHé<|eot_id|>";
        for (place, template) in
            [("a process of its own", template.clone()), ("this process", template.clone().trusted())]
        {
            let mut times: Vec<Duration> = (0..11)
                .map(|_| {
                    let started = Instant::now();
                    assert_eq!(template.render(&turns, true).unwrap(), expected);
                    started.elapsed()
                })
                .collect();
            times.sort_unstable();
            println!("a template in {place}: {:?} (median of 11)", times[5]);
        }
        // A text as long as a book, and a template that stores it several times.
        let book = [Message::new("user", &"word ".repeat(5_000_000))];
        assert!(template.render(&book, true).unwrap().len() > 24_000_000);
        let refusal = ChatTemplate::new("{% set a = 1 %}{{ raise_exception('roles must alternate') }}", "", "");
        let refused = refusal.render(&turns, true).unwrap_err().to_string();
        assert!(refused.contains("roles must alternate") && refused.contains("without a chat template"), "{refused}");
        // Several at once, as a server renders them.
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| assert_eq!(template.render(&turns, true).unwrap(), expected));
            }
        });
        let taken = peak_of_children();
        assert!(taken < CEILING, "{taken} bytes for honest templates");
    }

    pub(super) fn hostile_templates_end_alone() {
        let doubled = |start: &str, step: &str, times: usize, end: &str| format!("{start}{}{end}", step.repeat(times));
        let deep = "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}";
        let (memory, time) = ("limit of 384 MB", "more than the limit of 10 s");
        for (source, causes) in [
            (doubled("{% set x = 'word' %}", "{% set x = x ~ x %}", 50, "{{ x | length }}"), vec![memory]),
            (doubled("{% set x = 'word' %}", "{% set x = x + x %}", 50, ""), vec![memory]),
            (doubled("{% set x = 'word' %}", "{% set x = x.replace('w', x) %}", 50, ""), vec![memory]),
            (doubled("{% set x = 'word' %}", "{% set x = [x, x] | join %}", 50, ""), vec![memory]),
            // Writes word by word: a slow machine reaches the limit on time first.
            (
                doubled("{% set x = 'word' %}", "{% set x = [x, x] %}", 50, "{{ x | string | length }}"),
                vec![memory, time],
            ),
            // Compares for ever, and holds almost no memory.
            (
                doubled(
                    "{% set x = 'a' %}{% set y = 'a' %}",
                    "{% set x = [x, x] %}{% set y = [y, y] %}",
                    60,
                    "{{ x == y }}",
                ),
                vec![time],
            ),
            // An error message of excessive length.
            ("{% set x = 'a' * 30000000 %}{{ raise_exception(x) }}".to_string(), vec!["aaaa…"]),
            (format!("{deep}{{{{ ns.x | tojson | length }}}}"), vec![""]),
            ("{% set x = 'word' * 999999999 %}".to_string(), vec![""]),
        ] {
            let started = Instant::now();
            let rendered = ChatTemplate::new(&source, "", "").render(&[Message::new("user", "hi")], true);
            let taken = started.elapsed();
            assert!(taken < Duration::from_secs(60), "{taken:?}: {source}");
            match rendered {
                Err(error) => {
                    let said = error.to_string();
                    assert!(causes.iter().any(|cause| said.contains(cause)), "{said}: {source}");
                }
                Ok(text) => assert!(causes.contains(&""), "{text}: {source}"),
            }
        }
        let taken = peak_of_children();
        println!("the largest process that rendered took {} MB", taken >> 20);
        assert!(taken < CEILING, "{taken} bytes");
    }

    /// Bytes that the largest child had at once.
    fn peak_of_children() -> u64 {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: it writes a `rusage`, for which there is room.
        let usage = unsafe {
            assert_eq!(libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()), 0);
            usage.assume_init()
        };
        let unit = if cfg!(target_os = "macos") { 1 } else { 1024 };
        u64::try_from(usage.ru_maxrss).unwrap() * unit
    }
}
