//! A program that forks while it serves metrics. A process of its own: where one session has a layer, another one finds a
//! subscriber in place.
#![cfg(all(target_os = "linux", feature = "prometheus"))]
#![allow(missing_docs, unsafe_code, reason = "a test; fork has no safe form")]

/// Nobody in the child answers who connects, and whoever comes after its parent wants the address.
#[test]
fn a_forked_child_does_not_keep_the_address_of_the_metrics() {
    use std::net::{TcpListener, TcpStream};
    let bind = |address: std::net::SocketAddr| TcpListener::bind(address);
    let free = bind(([127, 0, 0, 1], 0).into()).expect("a port");
    let address = free.local_addr().expect("an address");
    drop(free);
    let builder = candlescope::builder().prometheus(address.to_string()).host(false).report_at_end(false);
    let (_layer, scope) = builder.layer().expect("serves");
    TcpStream::connect(address).expect("it listens");
    // SAFETY: the child only waits to be ended.
    let child = unsafe { libc::fork() };
    if child == 0 {
        loop {
            // SAFETY: waits for a signal.
            unsafe { libc::pause() };
        }
    }
    assert!(child > 0, "fork");
    drop(scope);
    let (refused, bound) = (TcpStream::connect(address), bind(address));
    // SAFETY: it is our child, and nobody has waited for it.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    assert!(refused.is_err() && bound.is_ok(), "{refused:?} {bound:?}");
}
