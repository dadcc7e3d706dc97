//! Measures the planner. A stand-in for `muster bench engine`.
#![allow(clippy::print_stdout, clippy::disallowed_methods)]
use muster_engine::{plan, solve};
use muster_sim::scenario;
fn main() {
    for path in std::env::args().skip(1) {
        let bytes = std::fs::read(&path).unwrap();
        let sc = scenario::read(&bytes).unwrap();
        let mut best = [f64::MAX; 3];
        let mut line = String::new();
        for _ in 0..3 {
            let t0 = std::time::Instant::now();
            let world = sc.world().unwrap();
            let input = world.input();
            let t1 = std::time::Instant::now();
            let mut keys = Vec::new();
            let tr = plan::translate(&input, &mut keys);
            let t2 = std::time::Instant::now();
            let sol = solve::solve(&tr.problem);
            let t3 = std::time::Instant::now();
            for (b, d) in best.iter_mut().zip([t1 - t0, t2 - t1, t3 - t2]) {
                *b = b.min(d.as_secs_f64() * 1e3);
            }
            let bad = solve::check(&tr.problem, &sol);
            let lb = muster_sim::bench_engine::bound::lower_bound(&tr.problem, None);
            if std::env::var("DUMP").is_ok() && line.is_empty() {
                let p = &tr.problem;
                let mut load = vec![vec![0i64; p.lanes]; sol.machines.len()];
                let mut pods = vec![0u32; sol.machines.len()];
                for st in &sol.steps { if let solve::Target::Machine(m) = st.target { for l in 0..p.lanes { load[m as usize][l] += p.classes[st.class as usize].request[l] * i64::from(st.count); } pods[m as usize] += st.count; } }
                let mut agg: std::collections::BTreeMap<u32, (u32, Vec<i64>, u32)> = Default::default();
                for (m, &s) in sol.machines.iter().enumerate() { let e = agg.entry(s).or_insert((0, vec![0; p.lanes], 0)); e.0 += 1; e.2 += pods[m]; for l in 0..p.lanes { e.1[l] += load[m][l]; } }
                println!("lanes {:?}", tr.lanes);
                for (s, (n, l, pods)) in agg { let sh = &p.shapes[s as usize]; println!("{} x {} {} cost {} pods {} util {:?}", n, world.offers[s as usize].template, world.offers[s as usize].zone, sh.cost, pods, (0..p.lanes).map(|d| l[d] * 1000 / (sh.room[d].max(1) * i64::from(n))).collect::<Vec<_>>()); }
            }
            line = format!(
                "{:28} classes {:5} counters {:3} nodes {:5} cost {:10.4} lb {:.4} ratio {:.4} left {} bad {} effort {}",
                sc.name, tr.classes.len(), tr.problem.counters.len(), sol.machines.len(),
                sol.cost(&tr.problem) as f64 / 1e6, lb.cost / 1e6, sol.cost(&tr.problem) as f64 / lb.cost, sol.left(), bad, sol.effort
            );
        }
        println!("{line} | expand {:.2} translate {:.2} solve {:.2} ms", best[0], best[1], best[2]);
    }
}
