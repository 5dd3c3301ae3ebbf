//! Which shard of the nodes a replica of the pool works for.

use host_kit::config::{ConfigSetting, Refusals, Values, parse};

pub(super) const SHARDS: ConfigSetting<u32> = ConfigSetting::with_default(
    "POOL_SHARDS",
    "1",
    |text| parse::whole(text, 1..=10_000),
    "a whole number from 1",
    "How many replicas share the nodes; it must be the number of replicas",
);
pub(super) const SHARD_ID: ConfigSetting<Option<u32>> = ConfigSetting::optional(
    "POOL_SHARD_ID",
    |text| parse::whole(text, 0..=9_999).map(Some),
    "a whole number below POOL_SHARDS",
    "Which part this replica works for; without it the ordinal at the end of POD_NAME",
);
pub(super) const POD_NAME: ConfigSetting<Option<String>> = ConfigSetting::optional(
    "POD_NAME",
    |text| parse::text(text).map(Some),
    "the name of a pod of a StatefulSet",
    "The pod's name, for its ordinal and as its name in the Lease of its part; set it from metadata.name",
);
pub(super) const CONCURRENCY: ConfigSetting<usize> = ConfigSetting::with_default(
    "POOL_CONCURRENCY",
    "64",
    |text| parse::whole(text, 1..=4096),
    "a whole number from 1 to 4096",
    "How many requests to nodes are under way at once",
);

/// A shard of the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shards {
    count: u32,
    own: u32,
}

impl Shards {
    /// All nodes.
    pub const WHOLE: Self = Self { count: 1, own: 0 };

    /// The shard `own` of `count`; `None` if there is no such shard.
    #[must_use]
    pub fn new(count: u32, own: u32) -> Option<Self> {
        (own < count).then_some(Self { count, own })
    }

    /// The Lease of this shard; its holder works for the shard. The name contains only the number of the shard, so that
    /// agents that were given different numbers of shards still exclude each other where their numbers meet.
    #[must_use]
    pub fn lease_name(self) -> String {
        format!("joulie-agent-pool-{}", self.own)
    }

    /// Whether a node is in this shard: FNV-1a with 32 bits of its name, modulo the number of shards.
    #[must_use]
    pub fn own(self, node: &str) -> bool {
        self.count <= 1 || fnv1a(node) % self.count == self.own
    }
}

fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(2_166_136_261, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(16_777_619))
}

/// The number after the last hyphen; 0 if there is none.
fn ordinal(pod: &str) -> u32 {
    pod.rsplit_once('-').and_then(|(_, digits)| digits.parse().ok()).unwrap_or(0)
}

pub(super) fn read(values: &Values) -> Result<Shards, Refusals> {
    let count = values.get(&SHARDS)?;
    let named = values.get(&POD_NAME)?;
    let own = values.get(&SHARD_ID)?.unwrap_or_else(|| named.as_deref().map_or(0, ordinal));
    Shards::new(count, own).ok_or_else(|| {
        values.conflict(
            &[SHARDS.name(), SHARD_ID.name(), POD_NAME.name()],
            &format!("there is no part {own} of {count}; POOL_SHARDS must be the number of replicas"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_in_the_part_that_the_published_vectors_say() {
        // facts/agent.md 1.5: node, hash, and the part of 2, 3, 4, 5 and 7.
        for (node, hash, parts) in [
            ("node-a", 79_934_867, [1, 2, 3, 2, 5]),
            ("worker-1", 1_945_711_149, [1, 0, 1, 4, 4]),
            ("kwok-node-0", 817_058_045, [1, 2, 1, 0, 6]),
            ("kwok-node-1", 800_280_426, [0, 0, 2, 1, 1]),
            ("kwok-node-17", 1_950_740_327, [1, 2, 3, 2, 4]),
            ("k3s-server", 269_090_756, [0, 2, 0, 1, 4]),
            ("k3s-worker-0", 1_509_044_528, [0, 2, 0, 3, 5]),
            ("kwok-h100-nvl-0", 1_343_629_335, [1, 0, 3, 0, 6]),
            ("node.example.com", 4_229_033_978, [0, 2, 2, 3, 1]),
        ] {
            assert_eq!(fnv1a(node), hash, "{node}");
            for (count, part) in [2, 3, 4, 5, 7].into_iter().zip(parts) {
                assert!(Shards::new(count, part).unwrap().own(node), "{node} of {count}");
            }
        }
    }

    #[test]
    fn every_node_is_in_one_part_and_the_parts_are_even() {
        // Agent table, rows 11 and 12.
        let mut counts = [0; 5];
        for number in 0..500 {
            let node = format!("kwok-node-{number}");
            let owners: Vec<usize> = (0..5)
                .filter(|&own| Shards::new(5, own).unwrap().own(&node))
                .map(|own| usize::try_from(own).unwrap())
                .collect();
            assert_eq!(owners.len(), 1, "{node}");
            counts[owners[0]] += 1;
        }
        assert_eq!(counts, [102, 99, 94, 102, 103]);
        assert!(Shards::new(1, 0).unwrap().own("any"));
    }

    #[test]
    fn the_part_is_the_ordinal_of_the_pod() {
        // Agent table, row 13, and the resolution of facts/agent.md 1.5.
        for (pod, own) in
            [("joulie-agent-pool-3", 3), ("nodash", 0), ("a-", 0), ("a-b", 0), ("", 0), ("a-07", 7)]
        {
            assert_eq!(ordinal(pod), own, "{pod}");
        }
        assert_eq!(Shards::new(2, 2), None);
    }
}
