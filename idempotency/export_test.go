package idempotency

import (
	"strings"
	"time"
)

// Statistics and OpenClaims are the statements of [Store.Stats] and [Store.Open] without a schema.
var (
	Statistics = strings.ReplaceAll(statistics, "{schema}.", "")
	OpenClaims = strings.ReplaceAll(openClaims, "{schema}.", "")
)

// Age makes it so that the claim was made, or renewed, so much earlier, by the clock of this process.
func (c *Claim) Age(d time.Duration) { c.hold(time.Now().Add(-d)) }
