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

// Config configures a [Store]. Stores with different configurations may share a table, for example a store with a longer TTL for payments.
type Config struct {
	// Schema is the schema of the database that has the tables of oncebox. Default: oncebox if current_schema() of a new connection is public, else that
	// schema.
	Schema string
	// Pooler must be true if a pooler in transaction mode stands between the program and the database. Prepared statements are not used then. Default:
	// false.
	Pooler bool
	// DefaultTenantID is the tenant of scopes without a tenant. Default: "default".
	DefaultTenantID string
	// TTL is how long an answer is kept after its request was completed. A later request with the same key is executed anew. Default: 24h. With -1
	// (KeepForever) answers are kept for ever.
	TTL time.Duration `env:"TTL"`
	// AuditRetention is how long audit entries are kept, at least 24h. Default: 9600h, which is 400 days. With -1 audit entries are kept for ever.
	AuditRetention time.Duration
	// PurgeBatch is the number of expired keys that one statement of the cleaner deletes. Default: 5000 rows.
	PurgeBatch int `env:"PURGE_BATCH"`

	// Cache is the number of answers that a process also keeps in memory, so that further retries need no statement. An answer of up to 4 KiB, with its
	// headers, is kept in memory from its first retry on. If an answer is deleted in the database, by Release or by hand, a process may send the answer
	// from its memory for up to a minute. Default: 4096. With -1 no answer is kept in memory.
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
	if c.DefaultTenantID != "" {
		probe := Scope{Tenant: c.DefaultTenantID, Anonymous: true, Key: "k"}
		if err := probe.validate(); err != nil {
			check.Add(fmt.Errorf("idempotency: Config.DefaultTenantID: %w", err))
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
	out.DefaultTenantID = cmp.Or(out.DefaultTenantID, "default")
	return out
}
