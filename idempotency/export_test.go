package idempotency

import (
	"strings"
	"time"
)

// Statistics is the statement of [Store.Stats] without a schema.
var Statistics = strings.ReplaceAll(statistics, "{schema}.", "")

// Age makes it so that the claim was made, or renewed, so much earlier, by the clock of this process.
func (c *Claim) Age(d time.Duration) { c.hold(time.Now().Add(-d)) }
