//! The monitor from scripted readings: what is shown, and what is told at the end.

use candlescope_core::HostNs;
use candlescope_monitor::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::time::Duration;

/// 2026-11-23 12:00:00 UTC.
const BEGAN: i64 = 1_795_435_200_000_000_000;

fn gpu(use_ratio: f64, watts: f64, energy: f64) -> GpuReading {
    let mut figures = GpuFigures::default();
    figures.use_ratio = Some(use_ratio);
    figures.memory_bytes = Some(102e9);
    figures.memory_limit_bytes = Some(150e9);
    figures.power_watts = Some(watts);
    figures.power_limit_watts = Some(700.0);
    figures.energy_joules = Some(energy);
    figures.sm_clock_hertz = Some(1.98e9);
    figures.temperature_celsius = Some(54.0);
    figures.throttled = Some(if watts > 600.0 { vec!["sw_power_cap".into()] } else { Vec::new() });
    GpuReading::new(0, "GPU-1", Some("NVIDIA H200".into()), figures)
}

fn process(cpu: f64) -> ProcessFigures {
    let mut figures = ProcessFigures::default();
    figures.cpu_ratio = Some(cpu);
    figures.memory_bytes = Some(512e6);
    figures.peak_memory_bytes = Some(600e6);
    figures.threads = Some(9.0);
    figures
}

fn counters(decode_tokens: f64) -> Answer {
    let text = format!(
        "candlescope_run_info{{run_id=\"r\",host=\"h\",model=\"smollm2-135m\",version=\"1\"}} 1\n\
         candlescope_phase_seconds_total{{clock=\"host\",phase=\"decode\",source=\"\"}} {}\n\
         candlescope_step_tokens_total{{phase=\"decode\"}} {decode_tokens}\n\
         candlescope_tokens_per_second{{phase=\"decode\"}} 61.5\n\
         candlescope_requests_active 2\ncandlescope_tokens_in_flight 1536\n\
         gen_ai_server_time_to_first_token_seconds_sum{{gen_ai_request_model=\"m\"}} 0.36\n\
         gen_ai_server_time_to_first_token_seconds_count{{gen_ai_request_model=\"m\"}} 30\n",
        decode_tokens / 60.0
    );
    Answer::Metrics(Box::new(Counters::of(&text).expect("candlescope's")))
}

fn reading(second: u64) -> Reading {
    let at = Duration::from_secs(second);
    let mut reading = Reading::new(at, HostNs(BEGAN).plus_ns(second * 1_000_000_000));
    reading.machine.load_1m = Some(1.25);
    reading.machine.memory_available_bytes = Some(8e9);
    reading
}

/// A GPU that works for four seconds and is idle for three, a program that decodes until it ends, a process of its own.
fn watched() -> Monitor {
    let mut monitor = Monitor::new(IdleRule::default());
    for second in 0..8 {
        let mut now = reading(second);
        let busy = second < 5;
        let joules = 1000.0 + 600.0 * second as f64;
        now.gpus.push(if busy { gpu(0.97, 640.0, joules) } else { gpu(0.0, 120.0, joules) });
        let name = "candlescope";
        now.processes.push(ProcessReading::new(41, name, busy.then(|| process(1.9))));
        now.processes.push(ProcessReading::new(77, "trainer", Some(process(0.25 * second as f64))));
        let answer = if busy { counters(54.0 * (second + 1) as f64) } else { Answer::Ended };
        if second <= 5 {
            now.programs.push(ProgramReading::new("127.0.0.1:9464", Some(41), name, answer));
        } else {
            now.processes.remove(0);
        }
        monitor.push(now);
    }
    monitor
}

fn midway() -> Monitor {
    let mut monitor = Monitor::new(IdleRule::default());
    for second in 0..4 {
        let mut now = reading(second);
        now.gpus.push(gpu(0.5 + 0.1 * second as f64, 640.0, 0.0));
        now.processes.push(ProcessReading::new(41, "candlescope", Some(process(1.9))));
        now.programs.push(ProgramReading::new(
            "127.0.0.1:9464",
            Some(41),
            "candlescope",
            counters(50.0 * (second * second) as f64 + 1.0),
        ));
        monitor.push(now);
    }
    monitor
}

fn screen(monitor: &Monitor, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal.draw(|frame| draw(frame, monitor)).expect("drawn");
    terminal.backend().to_string()
}

#[test]
fn the_screen_while_a_program_decodes() {
    insta::assert_snapshot!(screen(&midway(), 90, 16));
}

#[test]
fn the_screen_once_a_program_has_ended() {
    insta::assert_snapshot!(screen(&watched(), 90, 20));
}

#[test]
fn a_small_screen_says_what_it_leaves_out_and_no_size_breaks_it() {
    let monitor = watched();
    assert!(screen(&monitor, 90, 10).contains("2 panels not shown: make the window higher"));
    for width in [1, 2, 7, 20, 300] {
        for height in [1, 2, 3, 5, 8, 60] {
            screen(&monitor, width, height);
            screen(&Monitor::new(IdleRule::default()), width, height);
        }
    }
}

#[test]
fn lines_snapshot_and_summary() {
    let (now, end) = (midway(), watched());
    insta::assert_snapshot!(format!("{}\n{}", line(&now), line(&end)));
    insta::assert_snapshot!(snapshot(&now));
    insta::assert_snapshot!(summary(&end));
}

#[test]
fn nothing_known_is_said_and_is_no_zero() {
    let mut monitor = Monitor::new(IdleRule::default());
    let mut now = reading(0);
    now.gpu_trouble = Some("NVML could not be loaded".into());
    now.programs.push(ProgramReading::new("h:1", None, "h:1", Answer::Silent("connection refused".into())));
    monitor.push(now);
    let told = snapshot(&monitor);
    assert!(told.contains("GPU: NVML could not be loaded"), "{told}");
    assert!(told.contains("does not answer: connection refused"), "{told}");
    assert!(!told.contains("tokens/s") && !told.contains("TTFT"), "{told}");
    let rows = rows(&monitor);
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(rows[0].iter().filter(|value| !value.is_empty()).count(), 6, "time, what, its state: {rows:?}");
    assert_eq!(summary(&monitor), "watched for 0 ns, 1 reading");
}

#[test]
fn rows_have_a_value_where_it_is_known() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("rows.csv");
    let mut file = Rows::create(&path).expect("a file");
    file.add(&midway()).expect("written");
    let text = std::fs::read_to_string(&path).expect("there before the end");
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let head = reader.headers().expect("a head").clone();
    let rows: Vec<csv::StringRecord> = reader.records().map(|row| row.expect("a row")).collect();
    let value = |row: usize, column: &str| &rows[row][head.iter().position(|name| name == column).expect(column)];
    assert_eq!(
        (rows.len(), value(0, "subject"), value(1, "subject"), value(2, "subject")),
        (3, "gpu", "process", "program")
    );
    assert_eq!((value(0, "power_watts"), value(0, "throttled"), value(0, "cpu_ratio")), ("640", "sw_power_cap", ""));
    assert_eq!((value(1, "id"), value(1, "cpu_ratio"), value(1, "use_ratio")), ("41", "1.9", ""));
    assert_eq!((value(2, "phase"), value(2, "tokens_per_second")), ("decode", "250"));
    assert_eq!((value(2, "time_ns"), value(2, "elapsed_seconds")), ("1795435203000000000", "3.000"));
}

#[test]
fn rows_that_cannot_be_written_name_the_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("none").join("rows.csv");
    let told = Rows::create(&path).expect_err("no such directory").to_string();
    assert!(told.contains("none/rows.csv") && told.contains("--csv"), "{told}");
    #[cfg(target_os = "linux")]
    {
        let told = Rows::create("/dev/full".as_ref()).expect_err("full").to_string();
        assert!(told.contains("/dev/full"), "{told}");
    }
}

#[test]
fn a_process_number_that_comes_back_is_another_process() {
    let mut monitor = Monitor::new(IdleRule::default());
    for (second, figures) in [Some(process(1.0)), None, Some(process(0.5))].into_iter().enumerate() {
        let mut now = reading(second as u64);
        now.processes.push(ProcessReading::new(5, "p", figures));
        monitor.push(now);
    }
    assert_eq!(monitor.processes().len(), 2);
    assert_eq!(monitor.processes()[0].ended(), Some(Duration::from_secs(1)));
    assert_eq!((monitor.processes()[1].ended(), monitor.processes()[1].figures().cpu_ratio), (None, Some(0.5)));
}
