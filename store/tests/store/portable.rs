//! Export and import, between stores and through damage.

use std::{io::Cursor, sync::Arc};

use muster_model::{
    Timestamp,
    lease::{Candidate, LeaseConfig},
    store::{Committed, List, Revision, Store, StoreError, Txn},
};
use muster_store::{
    FORMAT_KEY,
    embedded::Embedded,
    memory::Memory,
    portable::{
        self, ImportOptions, PortableError, RESTORED_KEY, RESTORING_KEY, clear_restored,
        refuse_half_restored, restored, verify,
    },
};
use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::support::{Still, cluster, options, scratch};

const TIME: Timestamp = Timestamp::from_millis(1_760_695_200_000);
const LATER: Timestamp = Timestamp::from_millis(1_760_781_600_000);
const INTO_EMPTY: ImportOptions = ImportOptions { overwrite: false, time: LATER };
const OVER: ImportOptions = ImportOptions { overwrite: true, time: LATER };

async fn put(store: &dyn Store, key: &str, value: impl Into<bytes::Bytes>) -> Revision {
    match store.commit(Txn::new().put(key, value)).await.expect("it commits") {
        Committed::Done { revision } => revision,
        refused @ Committed::Refused { .. } => panic!("{refused:?}"),
    }
}

/// Values of every kind.
async fn fill(store: &dyn Store) {
    put(store, FORMAT_KEY, r#"{"format":1}"#).await;
    put(store, "/muster/json", r#"{"b": 1,  "a":[1.50,"ä\u00e4"]}"#).await;
    put(store, "/muster/number", "1.0").await;
    put(store, "/muster/null", "null").await;
    put(store, "/muster/empty", "").await;
    put(store, "/muster/text", "no json").await;
    put(store, "/muster/lines", "{\n  \"pretty\": true\n}").await;
    put(store, "/muster/spaces", " {} ").await;
    put(store, "/muster/bytes", (0..=255).collect::<Vec<u8>>()).await;
    put(store, "/muster/ünï \"quoted\"\t🦀", "{}").await;
    put(store, "/muster/large", vec![7; 1 << 20]).await;
    for n in 0..300 {
        put(store, &format!("/baremetal/nodes/h{n}/spec"), format!(r#"{{"n":{n}}}"#)).await;
    }
}

async fn contents(store: &dyn Store) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut list = List::default();
    loop {
        let page = store.list(list.clone()).await.expect("it lists");
        list.at = Some(page.revision);
        list.after = page.entries.last().map(|entry| entry.key.clone());
        found.extend(page.entries.into_iter().map(|entry| (entry.key, entry.value.to_vec())));
        if !page.more {
            found.retain(|(key, _)| key != RESTORED_KEY);
            return found;
        }
    }
}

async fn exported(store: &dyn Store) -> Vec<u8> {
    let mut file = Vec::new();
    portable::export(store, &mut file, TIME).await.expect("it exports");
    file
}

async fn import(
    store: &dyn Store,
    file: &[u8],
    options: ImportOptions,
) -> Result<portable::Imported, PortableError> {
    portable::import(store, Cursor::new(file), options).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_travels_from_embedded_to_etcd_and_back() {
    let (first, last) = (scratch(), scratch());
    let source = Embedded::open(first.path(), options()).expect("it opens");
    fill(&source).await;
    let whole = contents(&source).await;
    let file = exported(&source).await;

    let cluster = cluster::shared().await;
    let _alone = cluster::alone().await;
    let with = muster_store::etcd::Options { root: "/travelling".to_owned(), ..cluster::options() };
    let middle = cluster.open(with).await;
    let done = import(&middle, &file, INTO_EMPTY).await.expect("it imports");
    assert_eq!(done.count, whole.len() as u64);
    assert_eq!(contents(&middle).await, whole);

    let target = Embedded::open(last.path(), options()).expect("it opens");
    let second = exported(&middle).await;
    assert!(!String::from_utf8_lossy(&second).contains("/travelling"), "a root does not travel");
    let done = import(&target, &second, INTO_EMPTY).await.expect("it imports");
    assert!(done.revisions_moved_on);
    assert_eq!(contents(&target).await, whole);
    let origin = verify(&second[..]).expect("it is sound").header.revision;
    assert!(
        put(&target, "/new", "1").await > origin,
        "a revision of the old store may be taken for one of the new"
    );
    middle.close().await.expect("it closes");
}

#[tokio::test]
async fn an_export_is_readable_and_shows_one_moment() {
    let store = Arc::new(Memory::new(100_000));
    fill(&*store).await;
    put(&*store, "/muster/leases/leader", "{}").await;
    let writer = tokio::spawn({
        let store = Arc::clone(&store);
        async move {
            for n in 0..2000 {
                let value = n.to_string();
                let txn = Txn::new().put("/a-first", value.clone()).put("/z-last", value);
                assert!(matches!(store.commit(txn).await, Ok(Committed::Done { .. })));
                tokio::task::yield_now().await;
            }
        }
    });
    while store.get("/z-last").await.expect("it reads").is_none() {
        tokio::task::yield_now().await;
    }
    for _ in 0..5 {
        let file = String::from_utf8(exported(&*store).await).expect("it is text");
        let value = |key: &str| {
            let line = file.lines().find(|line| line.contains(&format!("{key:?}"))).expect("it is there");
            let line: serde_json::Value = serde_json::from_str(line).expect("each line is JSON");
            line["json"].clone()
        };
        assert_eq!(value("/a-first"), value("/z-last"), "the export shows two moments");
        assert!(file.contains(r#""json":{"b": 1,  "a":[1.50,"ä\u00e4"]}"#), "JSON stays as it is");
        assert!(!file.contains("/muster/leases/"), "a lease means nothing elsewhere");
        let sound = verify(file.as_bytes()).expect("it is sound");
        assert_eq!(sound.header.time, TIME);
        assert_eq!(sound.count + 2, file.lines().count() as u64);
    }
    writer.await.expect("it finishes");
}

#[tokio::test]
async fn a_changed_export_is_noticed_and_imports_nothing() {
    let store = Memory::default();
    fill(&store).await;
    let file = exported(&store).await;
    verify(&file[..]).expect("the original is sound");
    let lines: Vec<&[u8]> = file.split_inclusive(|byte| *byte == b'\n').collect();
    let mut broken: Vec<(String, Vec<u8>)> = vec![
        ("empty".to_owned(), Vec::new()),
        ("not an export".to_owned(), b"{\"hello\":1}\n".to_vec()),
        ("header only".to_owned(), lines[0].to_vec()),
        ("without its end".to_owned(), lines[..lines.len() - 1].concat()),
        ("a line gone".to_owned(), [&lines[..5], &lines[6..]].concat().concat()),
        ("a line twice".to_owned(), [&lines[..6], &lines[5..]].concat().concat()),
        ("something after the end".to_owned(), [&file[..], b"{}\n"].concat()),
        ("two exports".to_owned(), [&file[..], &file[..]].concat()),
    ];
    let mut swapped = lines.clone();
    swapped.swap(7, 8);
    broken.push(("two lines swapped".to_owned(), swapped.concat()));
    let mut random = StdRng::seed_from_u64(3);
    for _ in 0..60 {
        let mut changed = file.clone();
        let at = random.random_range(0..file.len());
        changed[at] ^= 1 << random.random_range(0..8);
        broken.push((format!("a bit flipped at {at}"), changed));
        let cut = random.random_range(0..file.len());
        broken.push((format!("cut at {cut}"), file[..cut].to_vec()));
    }
    for (how, file) in &broken {
        verify(&file[..]).expect_err(how);
        let target = Memory::default();
        import(&target, file, INTO_EMPTY).await.expect_err(how);
        assert_eq!(
            target.revision().await.expect("it answers"),
            Revision::ZERO,
            "{how}: something was written"
        );
    }
    let newer = String::from_utf8_lossy(lines[0]).replacen("\"muster_export\":1", "\"muster_export\":2", 1);
    let error = verify(newer.as_bytes()).expect_err("it is newer");
    assert!(matches!(error, PortableError::Format { found: 2 }), "{error}");
    let cut = verify(&file[..file.len() / 2]).expect_err("it is cut");
    assert!(matches!(cut, PortableError::Truncated { .. }), "{cut}");
}

#[tokio::test]
async fn a_target_is_overwritten_only_when_asked() {
    let source = Memory::default();
    fill(&source).await;
    let file = exported(&source).await;
    let target = Memory::default();
    put(&target, FORMAT_KEY, "{}").await;
    put(&target, "/muster/mine", "1").await;
    put(&target, "/muster/json", "mine").await;
    put(&target, "/muster/leases/leader/epoch", "me").await;
    let before = target.revision().await.expect("it answers");
    match import(&target, &file, INTO_EMPTY).await {
        Err(PortableError::NotEmpty { key }) => assert!(key.starts_with("/muster/"), "{key}"),
        other => panic!("it was overwritten: {other:?}"),
    }
    assert_eq!(target.revision().await.expect("it answers"), before);
    let done = import(&target, &file, OVER).await.expect("it imports");
    assert_eq!(done.removed, 2);
    assert_eq!(contents(&target).await, contents(&source).await);
}

#[tokio::test]
async fn an_import_that_was_cut_off_can_be_seen_and_finished() {
    let source = Memory::default();
    fill(&source).await;
    let file = exported(&source).await;
    let (all, origin) = (contents(&source).await, verify(&file[..]).expect("it is sound"));
    // As a crash in the middle leaves it: the mark, and some of the keys.
    let target = Memory::default();
    let mark = format!(
        r#"{{"revision":{},"exported":"{TIME}","imported":"{LATER}","sha256":"{}"}}"#,
        origin.header.revision, origin.sha256
    );
    put(&target, RESTORING_KEY, mark).await;
    for (key, value) in all.iter().take(50) {
        put(&target, key, value.clone()).await;
    }
    let refused = refuse_half_restored(&target).await.expect_err("it is half there");
    assert!(refused.to_string().contains("muster store import"), "{refused}");
    put(&source, "/other", "1").await;
    let other = exported(&source).await;
    let error = import(&target, &other, INTO_EMPTY).await.expect_err("another export is not the same");
    assert!(matches!(error, PortableError::OtherImport { .. }), "{error}");
    import(&target, &file, INTO_EMPTY).await.expect("the same one goes on");
    assert_eq!(contents(&target).await, all);
    refuse_half_restored(&target).await.expect("it is whole");
}

#[tokio::test]
async fn a_restored_store_says_so_until_it_is_confirmed() {
    let source = Memory::default();
    fill(&source).await;
    let at = source.revision().await.expect("it answers");
    let file = exported(&source).await;
    let target = Memory::default();
    assert_eq!(restored(&target).await.expect("it reads"), None);
    import(&target, &file, INTO_EMPTY).await.expect("it imports");
    let seen = restored(&target).await.expect("it reads").expect("it was restored");
    assert_eq!((seen.revision, seen.exported, seen.imported), (at, TIME, LATER));
    // What was restored is itself exported without the mark: it is about this store.
    assert!(!String::from_utf8_lossy(&exported(&target).await).contains(RESTORED_KEY));
    // Another import in between is not confirmed by whoever saw only the first.
    import(&target, &file, ImportOptions { time: TIME, ..OVER }).await.expect("it imports");
    assert!(!clear_restored(&target, &seen).await.expect("it answers"));
    let seen = restored(&target).await.expect("it reads").expect("it was restored");
    assert!(clear_restored(&target, &seen).await.expect("it answers"));
    assert_eq!(restored(&target).await.expect("it reads"), None);
}

/// A leader from before a restore must not be able to write after it.
#[tokio::test]
async fn leaders_from_before_a_restore_are_fenced_off() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    fill(&*store).await;
    let config = LeaseConfig::new("leader", "a");
    let mut leader = Candidate::new(Arc::clone(&store), Arc::new(Still), config).expect("the times fit");
    leader.step().await.expect("it takes the lease");
    let fence = leader.leading().expect("it leads");
    let file = exported(&*store).await;
    import(&*store, &file, OVER).await.expect("it imports");
    let late = store.commit(Txn::new().fenced(&fence).put("/x", "1")).await.expect("it answers");
    assert!(matches!(late, Committed::Refused { .. }));
    // Whoever remembers a revision that the store has not reached is told so.
    let ahead = Revision(store.revision().await.expect("it answers").0 + 1);
    assert!(matches!(store.watch("", ahead).await.err(), Some(StoreError::Future { .. })));
}
