package progress

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/retry"
)

// Rules are the settings that decide what becomes of a row that cannot be published. The fields are those of
// projector.Config.
type Rules struct {
	MaxRetryAttempts  int
	MaxCrashes        int
	Retry             retry.Policy
	ContinueAfterDead []string
	BlockExpired      bool
}

// ErrExpired is the reason of a dead letter that had expired before it could be published.
var ErrExpired = errors.New("expired before it was published")

// Refusal returns how long a refused row waits, or that it is dead. The row's own limit of tries comes before that of
// the configuration. -1 in the configuration means that no refusal makes the row dead, not even a permanent one,
// unless the row has a limit of its own. A delay that the publisher asks for comes before the configured pause.
func (s *Rules) Refusal(r *outboxdb.Row, err error) (wait time.Duration, dead bool) {
	limit := s.MaxRetryAttempts
	if r.Delivery.MaxAttempts > 0 {
		limit = r.Delivery.MaxAttempts
	}
	attempts := r.RetryCount + 1
	if limit > 0 && (messaging.IsPermanent(err) || attempts >= limit) {
		return 0, true
	}
	if d, ok := messaging.RetryDelay(err); ok {
		return d, false
	}
	return s.Retry.Pause(attempts), false
}

// Kills reports whether a row is to become a dead letter because projectors have died over it, and why. The first
// count does not matter: at that time the row was one of many.
func (s *Rules) Kills(r *outboxdb.Row) (reason string, dead bool) {
	if s.MaxCrashes <= 0 || r.Crashes <= s.MaxCrashes {
		return "", false
	}
	return fmt.Sprintf("%d relays died while they published this event by itself", r.Crashes-1), true
}

// BlocksExpired reports whether an expired row of a topic blocks its key.
func (s *Rules) BlocksExpired(topic string) bool { return s.BlockExpired && s.BlocksDead(topic) }

// BlocksDead reports whether a dead row of a topic blocks its key.
func (s *Rules) BlocksDead(topic string) bool { return !s.goesOn(topic) }

// goesOn reports whether the keys of a topic go on after a dead row.
func (s *Rules) goesOn(topic string) bool {
	return slices.Contains(s.ContinueAfterDead, topic) || slices.Contains(s.ContinueAfterDead, "*")
}
