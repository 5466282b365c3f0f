package outbox

// Relay is what package projector does with a [Store]: leases of lanes, reading, settling, retries, wake-ups. An application needs it only if
// it writes a relay of its own.
type Relay struct{ *Store }

// Relay returns the store as a relay uses it.
func (s *Store) Relay() Relay { return Relay{s} }
