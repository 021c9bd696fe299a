// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program over tokio that tries worker threads, timers, channels, blocking work, files, sockets. It prints the same
//! wherever it runs.
//!
//! ```text
//! colony-tokio FOLDER [WORKERS]
//! ```

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::net::UnixStream;
use tokio::sync::{Barrier, Mutex, mpsc, oneshot};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{interval, sleep, timeout};

/// Tasks of a kind: more than there are threads.
const TASKS: u64 = 200;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(folder) = arguments.next() else {
        eprintln!("usage: colony-tokio FOLDER [WORKERS]");
        return ExitCode::from(2);
    };
    let workers = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(4);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build();
    match runtime.and_then(|runtime| runtime.block_on(all(&folder))) {
        Ok(()) => ExitCode::from(5),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn all(folder: &str) -> io::Result<()> {
    println!("tasks {}", tasks().await);
    println!("messages {}", messages().await);
    println!("turns {}", turns().await);
    println!("timers {}", timers().await);
    println!("blocking {}", blocking(folder).await?);
    println!("sockets {}", sockets().await?);
    Ok(())
}

/// Tasks that let others go on.
async fn tasks() -> u64 {
    let sum = Arc::new(AtomicU64::new(0));
    let mut all = JoinSet::new();
    for n in 0..TASKS {
        let sum = sum.clone();
        all.spawn(async move {
            for _ in 0..10 {
                sum.fetch_add(n, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
    }
    while all.join_next().await.is_some() {}
    sum.load(Ordering::Relaxed)
}

/// A channel of many senders, and an answer to each.
async fn messages() -> u64 {
    let (to, mut from) = mpsc::channel::<(u64, oneshot::Sender<u64>)>(8);
    let server = tokio::spawn(async move {
        while let Some((number, answer)) = from.recv().await {
            let _ = answer.send(number * number);
        }
    });
    let mut all = JoinSet::new();
    for n in 0..TASKS {
        let to = to.clone();
        all.spawn(async move {
            let (answer, answered) = oneshot::channel();
            let _ = to.send((n, answer)).await;
            answered.await.unwrap_or(0)
        });
    }
    drop(to);
    let mut sum = 0;
    while let Some(Ok(square)) = all.join_next().await {
        sum += square;
    }
    let _ = server.await;
    sum
}

/// A lock and a barrier, over and over.
async fn turns() -> u64 {
    let (count, barrier) = (Arc::new(Mutex::new(0)), Arc::new(Barrier::new(8)));
    let mut all = JoinSet::new();
    for _ in 0..8 {
        let (count, barrier) = (count.clone(), barrier.clone());
        all.spawn(async move {
            for _ in 0..50 {
                *count.lock().await += 1;
                barrier.wait().await;
            }
        });
    }
    while all.join_next().await.is_some() {}
    *count.lock().await
}

/// Sleeps side by side, ticks, and a wait that is given up.
async fn timers() -> String {
    let start = Instant::now();
    let mut all = JoinSet::new();
    for n in 0..TASKS {
        all.spawn(sleep(Duration::from_millis(20 + n % 10)));
    }
    while all.join_next().await.is_some() {}
    let together = start.elapsed() >= Duration::from_millis(29);
    let mut ticks = interval(Duration::from_millis(2));
    for _ in 0..5 {
        ticks.tick().await;
    }
    let given_up = timeout(Duration::from_millis(5), std::future::pending::<()>()).await.is_err();
    format!("{together} {given_up}")
}

/// Files, by the threads for work that blocks.
async fn blocking(folder: &str) -> io::Result<u64> {
    let mut all = JoinSet::new();
    for n in 0..20u64 {
        let path = format!("{folder}/tokio-{n}");
        all.spawn(spawn_blocking(move || -> io::Result<u64> {
            std::fs::write(&path, n.to_string())?;
            let text = std::fs::read_to_string(&path)?;
            std::fs::remove_file(&path)?;
            text.parse().map_err(io::Error::other)
        }));
    }
    let mut sum = 0;
    while let Some(done) = all.join_next().await {
        sum += done.map_err(io::Error::other)?.map_err(io::Error::other)??;
    }
    Ok(sum)
}

/// Sockets that wait for each other.
async fn sockets() -> io::Result<u64> {
    let (near, far) = UnixStream::pair()?;
    let echo = tokio::spawn(async move {
        let mut buffer = [0; 64];
        loop {
            far.readable().await?;
            match far.try_read(&mut buffer) {
                Ok(0) => return io::Result::Ok(()),
                Ok(n) => {
                    far.writable().await?;
                    far.try_write(&buffer[..n])?;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
    });
    let mut rounds = 0;
    for byte in 0..100u8 {
        near.writable().await?;
        near.try_write(&[byte])?;
        let mut buffer = [0; 1];
        loop {
            near.readable().await?;
            match near.try_read(&mut buffer) {
                Ok(_) => break,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
        rounds += u64::from(buffer == [byte]);
    }
    drop(near);
    echo.await.map_err(io::Error::other)??;
    Ok(rounds)
}
