package outbox

import "time"

// ProbeAfter sets after how much silence the listening connection is probed, and how long the probe may take.
func (s *Store) ProbeAfter(silence, answer time.Duration) {
	s.box.ProbeAfter, s.box.ProbeTimeout = silence, answer
}
