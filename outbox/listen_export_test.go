package outbox

import "time"

// ProbeAfter sets after how much silence the listening connection is probed.
func (s *Store) ProbeAfter(d time.Duration) { s.probe = d }
