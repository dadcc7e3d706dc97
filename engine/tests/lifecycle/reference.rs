//! The page about the lifecycle is generated from the table, and the table is complete.

use std::{collections::BTreeSet, fs, path::Path};

use muster_engine::lifecycle::table::{DRIFT, ROWS, Rule, admits, markdown};
use muster_model::host::Phase;

#[test]
fn the_reference_page_is_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/host-lifecycle.md");
    let page = markdown();
    if option_env!("UPDATE_DOCS").is_some() {
        fs::write(&path, &page).expect("the page can be written");
    }
    let stored = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == page,
        "docs/reference/host-lifecycle.md is not what the table says; write it anew with UPDATE_DOCS=1"
    );
}

#[test]
fn rows_and_cells_are_numbered_and_every_phase_can_be_entered_and_left() {
    for (place, row) in ROWS.iter().enumerate() {
        assert_eq!(usize::from(row.number), place + 1);
        assert!(!row.to.is_empty() && !row.event.is_empty() && !row.action.is_empty(), "row {}", row.number);
    }
    for (place, cell) in DRIFT.iter().enumerate() {
        assert_eq!(usize::from(cell.number), place + 1);
    }
    let named = |rows: &[u8], phases: fn(&muster_engine::lifecycle::table::Row) -> &'static [Phase]| {
        ROWS.iter()
            .filter(|row| !rows.contains(&row.number))
            .flat_map(|row| phases(row).iter().copied())
            .collect::<BTreeSet<_>>()
    };
    // Without the two rows that hold for every phase.
    let (entered, left) = (named(&[29, 30], |row| row.to), named(&[29, 30], |row| row.from));
    for phase in Phase::ALL {
        assert!(entered.contains(&phase), "nothing leads to {phase}");
        assert!(left.contains(&phase), "nothing leads away from {phase}");
    }
}

#[test]
fn the_table_refuses_moves_that_it_does_not_list() {
    assert!(admits(Rule::Row(4), Phase::Idle, Phase::Reserved));
    assert!(!admits(Rule::Row(4), Phase::Serving, Phase::Reserved));
    assert!(!admits(Rule::Row(26), Phase::Serving, Phase::Idle));
    assert!(!admits(Rule::Row(0), Phase::Idle, Phase::Reserved));
    assert!(!admits(Rule::Row(31), Phase::Idle, Phase::Idle));
    assert!(!admits(Rule::Wait, Phase::Idle, Phase::Serving));
    for phase in Phase::ALL {
        // Only a proof of off leads to rest: these rows and cells are the ones that ask for it.
        for rule in (1..=30).map(Rule::Row).chain((1..=8).map(Rule::Drift)) {
            let asks =
                matches!(rule, Rule::Row(2 | 4 | 12 | 26 | 27 | 28 | 29 | 30) | Rule::Drift(1 | 6 | 8));
            assert!(asks || !admits(rule, phase, Phase::Idle), "{rule} leads from {phase} to idle");
        }
    }
}
