package adopt

import (
	"cmp"
	"time"

	"github.com/oncebox/oncebox/internal/configs"
)

// Config configures a [Mover], which moves the rows of an old outbox.
type Config struct {
	// BatchSize is how many rows are moved in one transaction. The locks of their ordering keys are held until the transaction ends. Default: 500.
	BatchSize int
	// Interval is the pause of [Mover.Run] after it has found the old table empty. A new row of the old table waits for up to Interval. Default: 200ms.
	Interval time.Duration
	// Recheck is the interval at which [Mover.Run] tries again to move rows that it could not move. Somebody may have corrected these rows meanwhile.
	// Default: 10s.
	Recheck time.Duration
}

// Validate names every field that cannot be used.
func (c *Config) Validate() error {
	check := configs.CheckOf("adopt: Config")
	check.That(c.BatchSize >= 0 && c.BatchSize <= 10_000, "BatchSize", c.BatchSize, "give 1 to 10000")
	check.That(c.Interval >= 0, "Interval", c.Interval, "give a duration")
	check.That(c.Recheck >= 0, "Recheck", c.Recheck, "give a duration")
	return check.Err()
}

// WithDefaults returns a copy in which the fields that say nothing have their defaults. A nil Config is the zero one.
func (c *Config) WithDefaults() Config {
	out := configs.Copy(c)
	out.BatchSize = cmp.Or(out.BatchSize, 500)
	out.Interval = cmp.Or(out.Interval, 200*time.Millisecond)
	out.Recheck = cmp.Or(out.Recheck, 10*time.Second)
	return out
}
