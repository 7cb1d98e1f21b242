//! Programs that make sampling hard, each in a process of its own, so that a crash is seen.
#![allow(missing_docs, reason = "a test")]
#![allow(unsafe_code, reason = "signals, processes, libraries and machine code")]
#![cfg(target_os = "linux")]

mod stack_support;

use candlescope_collectors::stacks::SourceChoice;
use candlescope_core::ThreadState;
use stack_support::*;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

fn for_each_source(program: impl Fn() -> u64) -> Vec<(Recorded, u64)> {
    let run = |source| {
        let recorder = Recorder::with(source).unwrap();
        let outcome = program();
        let recorded = recorder.stop();
        println!(
            "{}: {} samples, lost {}, {:?}",
            recorded.source,
            recorded.samples.len(),
            recorded.lost,
            recorded.facts
        );
        assert_eq!(recorded.error, None);
        (recorded, outcome)
    };
    [SourceChoice::Perf, SourceChoice::Signals].map(run).into()
}

/// Calls itself so often, and works at the innermost.
#[inline(never)]
fn recursion(depth: u32, cpu_ns: u64) -> u64 {
    if depth == 0 {
        alpha(cpu_ns);
        return 1;
    }
    let room = black_box([depth; 4]);
    recursion(depth - 1, cpu_ns) + u64::from(room[black_box(1)])
}

fn deep() {
    for depth in [40, 1_000] {
        for (recorded, tid) in for_each_source(|| {
            let thread = std::thread::spawn(move || {
                black_box(recursion(depth, 500_000_000));
                thread_id()
            });
            thread.join().unwrap()
        }) {
            let of_it = recorded.samples.iter().filter(|s| s.tid == tid && recorded.has(s, "alpha"));
            let mut count = 0;
            for sample in of_it {
                let functions = recorded.functions(sample);
                let calls = functions.iter().filter(|name| name.ends_with("::recursion")).count();
                let cut = functions.last() == Some(&"[cut]");
                assert_eq!((calls, cut), if depth == 40 { (41, false) } else { (calls, true) }, "{functions:?}");
                assert!(calls > 40);
                count += 1;
            }
            assert!(count > 50, "{}", recorded.summary());
        }
    }
}

static OWN_SIGNALS: AtomicU64 = AtomicU64::new(0);

extern "C" fn own_handler(_: libc::c_int) {
    OWN_SIGNALS.fetch_add(1, Ordering::Relaxed);
}

/// A program that profiles itself by SIGPROF; and, if so, takes all real-time signals.
fn own_sigprof(all_signals: bool) {
    let handle = |signal| {
        // SAFETY: zeroes are a valid `sigaction`, the handler has the signature of one without SA_SIGINFO.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = own_handler as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
        }
    };
    handle(libc::SIGPROF);
    if all_signals {
        (libc::SIGRTMIN()..=libc::SIGRTMAX()).for_each(handle);
    }
    let time = libc::timeval { tv_sec: 0, tv_usec: 10_000 };
    let timer = libc::itimerval { it_interval: time, it_value: time };
    // SAFETY: the pointer is valid.
    unsafe { libc::setitimer(libc::ITIMER_PROF, &timer, std::ptr::null_mut()) };
    for (recorded, tid) in for_each_source(|| {
        let before = OWN_SIGNALS.load(Ordering::Relaxed);
        alpha(1_000_000_000);
        let own = OWN_SIGNALS.load(Ordering::Relaxed) - before;
        assert!((50..=160).contains(&own), "{own} of the program's own signals in a second");
        thread_id()
    }) {
        let seconds = recorded.weight(tid, ThreadState::Running, Some("alpha")) as f64 / 1e9;
        assert!((0.9..1.1).contains(&seconds), "{seconds}\n{}", recorded.summary());
    }
}

fn threads_that_come_and_go() {
    for (recorded, _) in for_each_source(|| {
        for _ in 0..150 {
            let threads: Vec<_> = (0..20).map(|i| std::thread::spawn(move || alpha(i * 50_000))).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        }
        0
    }) {
        let attached = recorded.events.iter().filter(|e| matches!(e.change, Attached { .. })).count();
        let detached = recorded.events.iter().filter(|e| e.change == Detached).count();
        println!("{attached} attached");
        assert_eq!(attached, detached);
        assert!(attached > 100);
    }
}

/// More threads at once than are sampled.
fn too_many_threads() {
    for (recorded, _) in for_each_source(|| {
        let barrier = Arc::new(Barrier::new(601));
        let wait = |barrier: Arc<Barrier>| move || barrier.wait().is_leader();
        let threads: Vec<_> = (0..600).map(|_| std::thread::spawn(wait(Arc::clone(&barrier)))).collect();
        std::thread::sleep(Duration::from_millis(2_000));
        barrier.wait();
        threads.into_iter().for_each(|thread| assert!(thread.join().is_ok()));
        0
    }) {
        assert!(recorded.facts["stacks_threads_left_out"].as_u64().unwrap() > 300);
    }
}

fn processes() {
    for_each_source(|| {
        let end = Instant::now() + Duration::from_secs(2);
        let busy = std::thread::spawn(|| alpha(1_500_000_000));
        while Instant::now() < end {
            assert!(std::process::Command::new("/bin/true").status().unwrap().success());
            // SAFETY: the child makes calls that a signal's handler may make, and ends.
            unsafe {
                let child = libc::fork();
                if child == 0 {
                    let mut n = 0_u64;
                    for i in 0..3_000_000_u64 {
                        n = black_box(n ^ i);
                    }
                    libc::_exit(0);
                }
                let mut status = -1;
                assert_eq!(libc::waitpid(child, &mut status, 0), child);
                assert_eq!(status, 0);
            }
        }
        busy.join().unwrap();
        0
    });
    // While it is sampled, the program becomes another one.
    let recorder = Recorder::with(SourceChoice::Signals).unwrap();
    let busy = || std::thread::spawn(|| alpha(10_000_000_000));
    let _threads = [busy(), busy(), busy()];
    alpha(200_000_000);
    let error = std::os::unix::process::CommandExt::exec(&mut std::process::Command::new("/bin/true"));
    drop(recorder);
    panic!("{error}");
}

fn libraries() {
    let candidates = [c"libz.so.1", c"libbz2.so.1.0", c"liblzma.so.5", c"libzstd.so.1", c"libm.so.6"];
    for (recorded, loads) in for_each_source(|| {
        let busy = std::thread::spawn(|| alpha(1_500_000_000));
        let (end, mut loads) = (Instant::now() + Duration::from_secs(2), 0);
        while Instant::now() < end {
            for name in candidates {
                // SAFETY: these libraries' initialisers do nothing, and nothing of them is used after they are closed.
                unsafe {
                    let library = libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
                    if library.is_null() {
                        continue;
                    }
                    loads += 1;
                    let checksum = libc::dlsym(library, c"crc32".as_ptr());
                    if !checksum.is_null() {
                        let checksum: extern "C" fn(u64, *const u8, u32) -> u64 = std::mem::transmute(checksum);
                        let bytes = [7_u8; 65_536];
                        for _ in 0..500 {
                            black_box(checksum(0, bytes.as_ptr(), bytes.len() as u32));
                        }
                    }
                    libc::dlclose(library);
                }
            }
        }
        busy.join().unwrap();
        loads
    }) {
        println!("{loads} loads; binaries: {:?}", recorded.binaries());
    }
}

fn stopped_and_continued() {
    for (recorded, tid) in for_each_source(|| {
        let me = std::process::id();
        let script = format!("sleep 0.3; kill -STOP {me}; sleep 0.7; kill -CONT {me}");
        let mut shell = std::process::Command::new("sh").args(["-c", &script]).spawn().unwrap();
        let end = Instant::now() + Duration::from_millis(1_600);
        while Instant::now() < end {
            alpha(5_000_000);
        }
        shell.wait().unwrap();
        thread_id()
    }) {
        let running = recorded.weight(tid, ThreadState::Running, None) as f64 / 1e9;
        println!("running {running} s");
        assert!((0.1..1.2).contains(&running), "{}", recorded.summary());
    }
}

/// Machine code that no file has.
#[cfg(target_arch = "x86_64")]
fn code_of_no_file() {
    // mov ecx, 100000000; dec ecx; jnz -4; ret
    let code = [0xb9, 0x00, 0xe1, 0xf5, 0x05, 0xff, 0xc9, 0x75, 0xfc, 0xc3_u8];
    // SAFETY: a fresh page, filled before it is called, and kept.
    let spin: extern "C" fn() = unsafe {
        let rights = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let page = libc::mmap(std::ptr::null_mut(), 4096, rights, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
        assert_ne!(page, libc::MAP_FAILED);
        std::ptr::copy_nonoverlapping(code.as_ptr(), page.cast(), code.len());
        std::mem::transmute(page)
    };
    for (recorded, tid) in for_each_source(|| {
        let end = Instant::now() + Duration::from_millis(1_000);
        while Instant::now() < end {
            spin();
        }
        thread_id()
    }) {
        let innermost = |s: &&candlescope_core::stacks::RawStackSample| s.tid == tid && s.state == ThreadState::Running;
        let unknown =
            recorded.samples.iter().filter(innermost).filter(|s| recorded.innermost(s).binary.as_ref() == "[unknown]");
        assert!(unknown.count() > 50, "{}", recorded.summary());
    }
}

/// The file of the running program is removed before it is read.
fn removed_binary() {
    std::fs::remove_file(std::env::current_exe().unwrap()).unwrap();
    for (recorded, tid) in for_each_source(|| {
        alpha(500_000_000);
        thread_id()
    }) {
        assert!(recorded.weight(tid, ThreadState::Running, Some("alpha")) > 400_000_000, "{}", recorded.summary());
    }
}

/// The program takes the sampler's signal away.
fn signal_taken() {
    let recorder = Recorder::with(SourceChoice::Signals).unwrap();
    alpha(200_000_000);
    for signal in libc::SIGRTMIN()..=libc::SIGRTMAX() {
        // SAFETY: the handler has the signature of one without SA_SIGINFO.
        unsafe { libc::signal(signal, own_handler as *const () as usize) };
    }
    alpha(500_000_000);
    let recorded = recorder.stop();
    assert!(recorded.error.as_deref().is_some_and(|e| e.contains("handler of its own")), "{:?}", recorded.error);
}

/// A program without room for files, and one that blocks all signals.
fn few_files_and_blocked_signals() {
    let limit = libc::rlimit { rlim_cur: 60, rlim_max: 60 };
    // SAFETY: the pointers are valid.
    unsafe {
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
    }
    for_each_source(|| {
        let work = || {
            alpha(100_000_000);
            std::thread::sleep(Duration::from_millis(300));
        };
        let threads: Vec<_> = (0..40).map(|_| std::thread::spawn(work)).collect();
        std::thread::sleep(Duration::from_millis(200));
        let files: Vec<_> = (0..8).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        files.len() as u64
    });
}

/// Parts that a child plays.
#[test]
fn player() {
    let Some(part) = part() else { return };
    match part.as_str() {
        "deep" => deep(),
        "own SIGPROF" => own_sigprof(false),
        "own signals, all of them" => own_sigprof(true),
        "threads" => threads_that_come_and_go(),
        "too many threads" => too_many_threads(),
        "processes" => processes(),
        "libraries" => libraries(),
        "stopped" => stopped_and_continued(),
        #[cfg(target_arch = "x86_64")]
        "code of no file" => code_of_no_file(),
        "removed binary" => removed_binary(),
        "signal taken" => signal_taken(),
        "few files" => few_files_and_blocked_signals(),
        _ => panic!("{part}"),
    }
}

use candlescope_core::stacks::ThreadChange::{Attached, Detached};

#[test]
fn deep_recursion_is_cut_at_its_outer_end() {
    let _alone = alone();
    play_well("player", "deep");
}

#[test]
fn a_program_keeps_its_own_profiling_signal() {
    let _alone = alone();
    play_well("player", "own SIGPROF");
    play_well("player", "own signals, all of them");
}

#[test]
fn threads_may_come_and_go_by_the_thousand() {
    let _alone = alone();
    play_well("player", "threads");
    play_well("player", "too many threads");
}

#[test]
fn children_and_another_program_are_not_disturbed() {
    let _alone = alone();
    play_well("player", "processes");
}

#[test]
fn libraries_may_come_and_go() {
    let _alone = alone();
    play_well("player", "libraries");
}

#[test]
fn a_stopped_process_goes_on() {
    let _alone = alone();
    play_well("player", "stopped");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn code_that_no_file_has_is_unknown() {
    let _alone = alone();
    play_well("player", "code of no file");
}

#[test]
fn a_binary_that_was_removed_has_its_names() {
    let _alone = alone();
    let copy = std::env::temp_dir().join(format!("candlescope-removed-{}", std::process::id()));
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let outcome = play_as(&copy, "player", "removed binary");
    let _ = std::fs::remove_file(&copy);
    println!("{}", String::from_utf8_lossy(&outcome.stdout));
    assert!(outcome.status.success(), "{}", String::from_utf8_lossy(&outcome.stderr));
}

#[test]
fn sampling_ends_where_the_program_takes_its_signal() {
    let _alone = alone();
    play_well("player", "signal taken");
}

#[test]
fn few_files_and_blocked_signals_lose_samples_and_nothing_else() {
    let _alone = alone();
    play_well("player", "few files");
}
