// SPDX-License-Identifier: MIT OR Apache-2.0
//! dev
use colony_balance::generate::*;
use colony_balance::quality::Quality;
use colony_balance::strategy::Strategies;
use colony_balance::topology::Topology;
const LOG: u32 = 20;
fn cpu() -> f64 {
    std::thread::yield_now();
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}
fn main() {
    let t = cpu();
    let mut db = Generator::new(Shape::lb_test((1 << (LOG - 6)), 1 << LOG)).unwrap().database().unwrap();
    println!("generate {:.3} s", cpu() - t);
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    for kind in 0..3 {
        if kind == 1 {
            // uniform 0.5..1.5
            let shape = Shape::lb_test((1 << (LOG - 6)), 1 << LOG);
            let factor: Vec<f64> = {
                let mut s = vec![0.0; (1 << (LOG - 6))];
                for i in 0..db.objects() {
                    s[db.placement()[i] as usize] += db.loads_s()[i];
                }
                s
            };
            let _ = shape;
            for i in 0..1u32 << 20 {
                let u = ((i as u64).wrapping_mul(0x9e3779b97f4a7c15) >> 11) as f64 / (1u64 << 53) as f64;
                let l = (0.5 + u) * factor[db.placement()[i as usize] as usize] / 64.0;
                db.set_load(i, l).unwrap();
            }
        }
        if kind == 2 {
            for i in 0..1u32 << 20 {
                let l = db.loads_s()[i as usize];
                let _ = l;
                let u = ((i as u64).wrapping_mul(0x9e3779b97f4a7c15) >> 11) as f64 / (1u64 << 53) as f64;
                db.set_load(i, 1e-3 * u.max(1e-9).powf(-0.4)).unwrap();
            }
        }
        let q = Quality::of(&db, db.placement(), &Topology::Flat).unwrap();
        println!("kind {kind} before {:.4}", q.imbalance);
        for a in &args {
            let s = Strategies::parse(a).unwrap();
            let t = cpu();
            let o = s.assign(&db, &Topology::Flat).unwrap();
            let t = cpu() - t;
            let q = Quality::of(&db, &o.placement, &Topology::Flat).unwrap();
            println!(
                "{a:30} {:.5} moved {:.2} % {:.3} s  db {:.2} MB",
                q.imbalance,
                q.moved_objects as f64 / ((1u64 << LOG) as f64 / 100.0),
                t,
                o.effort.database_bytes_one_pe as f64 / 1e6
            );
        }
    }
}
