fn main() {
    let args: Vec<String> = std::env::args().collect();
    use colony_sim::{*, event::*, cpus::Node, machine::Machine, rng::Key};
    let t = std::time::Instant::now();
    let s = goal::read(std::path::Path::new(&args[1])).unwrap();
    let read = t.elapsed();
    let rss = || std::fs::read_to_string("/proc/self/status").unwrap().lines().find(|l| l.starts_with("VmRSS")).unwrap().split_whitespace().nth(1).unwrap().parse::<u64>().unwrap();
    let mut m = Machine::loggopsim();
    if let Some(x) = args.get(3) { m.loggops.eager_bytes = x.parse().unwrap(); }
    let p = if args[2] == "a" { Progress::Asynchronous } else { Progress::ProgramOrder };
    let before = rss();
    for _ in 0..3 {
    let t = std::time::Instant::now();
    let o = run(&s, &m.network(s.ranks()).unwrap(), &Node::quiet(), p, Key::new(1), 0);
    let e = t.elapsed();
    match o { Ok(o) => { if std::env::var("V").is_ok() { for (i,e) in o.ends_ns.iter().enumerate() { println!("Host {i}: {e}"); } } eprintln!("{} {:.2} M ev/s, read {read:?} run {e:?}, schedule {} B/op+rss {} B/rank", o.total_ns(), o.events as f64 / e.as_secs_f64()/1e6, s.memory_bytes()/s.operations(), ((rss()-before) << 10) / s.ranks() as u64 ) }, Err(e) => println!("ERR {e}") }
    if std::env::var("V").is_ok() { return; }
    }
}
