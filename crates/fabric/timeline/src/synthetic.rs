// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events for tests.
use proptest::prelude::*;

use crate::record::{Event, MessageId, Migration};

prop_compose! {
    fn any_migration()(class: u16, object: u64, peer: u32, bytes: u32) -> Migration {
        Migration { class, object, peer, bytes }
    }
}

/// Any event.
pub(crate) fn any_event() -> impl Strategy<Value = Event> {
    let id = || any::<u64>().prop_map(MessageId::from_bits);
    prop_oneof![
        (any::<u16>(), id(), any::<u32>()).prop_map(|(entry, message, bytes)| Event::Executed {
            entry,
            message,
            bytes
        }),
        (any::<u16>(), id(), any::<u32>(), any::<u32>())
            .prop_map(|(entry, message, to, bytes)| Event::Sent { entry, message, to, bytes }),
        Just(Event::Idle),
        Just(Event::Overhead),
        Just(Event::Balancing),
        any_migration().prop_map(Event::MigratedOut),
        any_migration().prop_map(Event::MigratedIn),
        (any::<u16>(), any::<u64>()).prop_map(|(event, value)| Event::User { event, value }),
    ]
}
