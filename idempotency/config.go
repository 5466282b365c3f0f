package idempotency

import (
	"cmp"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/internal/configs"
	"github.com/oncebox/oncebox/telemetry"
)

const (
	// DefaultTTL is how long an answer is kept.
	DefaultTTL = 24 * time.Hour
	// DefaultAuditRetention is how long the audit is kept.
	DefaultAuditRetention = 400 * 24 * time.Hour
	// KeepForever keeps answers until [Store.Release] or a statement of yours removes them, and the audit until a statement of yours does.
	KeepForever = time.Duration(-1)
)

// Config configures a [Store]. Stores with different configurations may share a table: one with a longer TTL for
// payments, for example.
type Config struct {
	// Schema is the database schema of the table. Default: the first one of the search_path that connections begin with.
	Schema string
	// Pooler must be true if a transaction-mode pooler stands between the program and the database. Prepared statements are not used then. Default:
	// false.
	Pooler bool
	// DefaultTenant is the tenant of scopes without a tenant. Default: "default".
	DefaultTenant string
	// TTL is how long an answer is kept after its completion. Default: 24h. With -1 (KeepForever) it is kept for ever.
	TTL time.Duration `env:"TTL"`
	// AuditRetention is how long audit entries are kept, at least 24h. Default: 9600h, which is 400 days. With -1 they are kept for ever.
	AuditRetention time.Duration
	// PurgeBatch is the number of expired keys that one statement deletes. Default: 5000 rows.
	PurgeBatch int `env:"PURGE_BATCH"`

	// Cache is the number of answers that are also kept in memory after their first retry, if they have up to 4 KiB with their headers. Further
	// retries then cost no statement. An answer that was removed, by Release or by hand, may be served for a minute longer by other processes.
	// Default: 4096. With -1 there is no cache.
	Cache int `env:"CACHE"`

	// Telemetry sets where logs, traces and metrics go. A trace has a span for each purge. Default: slog.Default() and the global providers.
	Telemetry telemetry.Config
}

// Validate names every field that cannot be used.
func (c *Config) Validate() error {
	check := configs.CheckOf("idempotency: Config")
	check.That(c.TTL >= 0 || c.TTL == KeepForever, "TTL", c.TTL, "give a duration, or -1 (KeepForever)")
	check.AtLeast("AuditRetention", c.AuditRetention, 24*time.Hour, "give 24h or more, or -1 to keep the audit for ever")
	check.That(c.PurgeBatch >= 0, "PurgeBatch", c.PurgeBatch, "give a number of rows")
	if c.DefaultTenant != "" {
		probe := Scope{Tenant: c.DefaultTenant, Anonymous: true, Key: "k"}
		if err := probe.validate(); err != nil {
			check.Add(fmt.Errorf("idempotency: Config.DefaultTenant: %w", err))
		}
	}
	return check.Err()
}

// WithDefaults returns a copy in which the fields that are zero have their defaults. A nil Config counts as the zero one.
func (c *Config) WithDefaults() Config {
	out := configs.Copy(c)
	out.TTL = cmp.Or(out.TTL, DefaultTTL)
	out.AuditRetention = cmp.Or(out.AuditRetention, DefaultAuditRetention)
	out.PurgeBatch = cmp.Or(out.PurgeBatch, 5000)
	out.Cache = cmp.Or(out.Cache, 4096)
	out.DefaultTenant = cmp.Or(out.DefaultTenant, "default")
	return out
}
