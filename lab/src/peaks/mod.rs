//! What a device reaches at best: arithmetic, bandwidth, launches.
