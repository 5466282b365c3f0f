package adopt

import (
	"cmp"
	"time"

	"github.com/oncebox/oncebox/internal/configs"
)

// Config configures a [Mover].
type Config struct {
	// BatchSize is how many rows are moved in one transaction. The locks of their ordering keys are held as long. Default: 500.
	BatchSize int
	// Interval is the pause of [Mover.Run] between two looks at a table that was empty, and so the longest delay of a row. Default: 200ms.
	Interval time.Duration
	// Recheck is how often rows that stayed are looked at again, because somebody may have mended them. Default: 10s.
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
