//! attrib.
