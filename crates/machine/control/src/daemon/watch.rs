// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tells listeners which nodes have another state. Partitions keep the states of their nodes; they are asked while somebody
//! listens.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::control::{Control, Told};
use crate::api::NodeState;

/// Period of looks at the nodes. Their partition looks as often.
const LOOK: Duration = Duration::from_millis(500);

/// States of all nodes, by partition.
type States = BTreeMap<String, Vec<NodeState>>;

/// Numbers of nodes by their new state; all nodes of a partition that was not known.
fn changes(before: Option<&Vec<NodeState>>, after: &[NodeState]) -> BTreeMap<NodeState, Vec<u32>> {
    let mut changed = BTreeMap::<_, Vec<u32>>::new();
    for (at, state) in after.iter().enumerate() {
        if before.and_then(|before| before.get(at)) != Some(state) {
            changed.entry(*state).or_default().push(at as u32);
        }
    }
    changed
}

/// Watches the nodes as long as the daemon runs.
pub(super) async fn watch(control: Arc<Control>) {
    let mut known = States::new();
    loop {
        tokio::time::sleep(LOOK).await;
        if !control.has_listeners() {
            known.clear();
            continue;
        }
        let asked = control.clone();
        // a database that fails is reported to those who ask it
        let Ok(Ok(states)) = tokio::task::spawn_blocking(move || asked.all_node_states()).await else {
            continue;
        };
        for (partition, states) in &states {
            let nodes = changes(known.get(partition), states);
            if !nodes.is_empty() {
                control.tell(Told::Nodes { partition: partition.clone(), nodes });
            }
        }
        known = states;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_those_nodes_that_have_another_state() {
        use NodeState::{Busy, Dead, Ready};
        let before = vec![Ready, Ready, Busy];
        assert!(changes(Some(&before), &before).is_empty());
        let all = changes(Some(&before), &[Ready, Dead, Ready]);
        assert_eq!(all, BTreeMap::from([(Dead, vec![1]), (Ready, vec![2])]));
        assert_eq!(changes(None, &before), BTreeMap::from([(Ready, vec![0, 1]), (Busy, vec![2])]));
    }
}
