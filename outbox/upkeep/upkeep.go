// Package upkeep keeps the tables of an outbox in order. It makes the partitions of the days ahead, drops expired ones, and repairs
// lanes and leases that somebody changed by hand. Relays call it; operators call it to change the retention, or whose database it is.
//
//	err := store.Upkeep().SetRetention(ctx, operator.By{Actor: "ann", Reason: "the archive keeps a year"})
//
// # Guarantees
//
// An event that is not published is never dropped with its partition: the day stays. So does a day for which outbox.Config.BeforeDrop failed.
//
// Read first: upkeep.go:Upkeep.Clean, then drop.go and policy.go. reconcile.go is by itself.
package upkeep

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/partition"
)

// Values of outbox.Config.Retention, see there.
const (
	DefaultRetention = 7 * 24 * time.Hour
	NoRetention      = time.Duration(-2)
	KeepForever      = time.Duration(-1)
)

// Settings are the fields of outbox.Config about published rows, under the same names.
type Settings struct {
	// Retention is the default retention if OwnRetention is false.
	Retention time.Duration
	// OwnRetention is true if the process was configured with a retention.
	OwnRetention  bool
	BeforeDrop    func(ctx context.Context, p Partition) error
	MeterProvider metric.MeterProvider
}

// Upkeep keeps the tables of an outbox in order. It is safe for concurrent use.
type Upkeep struct {
	box            *outboxdb.Handle
	cfg            Settings
	partitionsKept metric.Int64Counter
	last           atomic.Pointer[policy] // the policy that was reported last
}

// New is for package outbox: see outbox.Store.Upkeep.
func New(box *outboxdb.Handle, cfg *Settings) *Upkeep {
	return &Upkeep{box: box, cfg: *cfg, partitionsKept: newPartitionsKept(cfg)}
}

// newPartitionsKept returns the counter of days that were kept, nil if there is no BeforeDrop.
func newPartitionsKept(c *Settings) metric.Int64Counter {
	if c.BeforeDrop == nil {
		return noop.Int64Counter{}
	}
	return otelx.Started(otelx.Meter(c.MeterProvider, "outbox"), "oncebox.outbox.partitions_kept",
		"Expired partitions that were not dropped because Config.BeforeDrop failed", nil)
}

// Clean is the part of outbox.Store.Clean that concerns partitions. A failure of BeforeDrop is logged and counted, and not returned.
func (u *Upkeep) Clean(ctx context.Context) error {
	err := u.EnsurePartitions(ctx)
	_, drop := u.dropExpired(ctx)
	return errors.Join(err, drop)
}

const (
	// daysAhead is how many daily partitions are made in advance. If no relay has run for that long, new rows go to the DEFAULT child.
	daysAhead = 3

	// makePartitions makes the children of a day: of outbox, outbox_progress and outbox_sent.
	makePartitions = `
SELECT {schema}.outbox_make_partition((clock_timestamp() AT TIME ZONE 'UTC')::date + $1::int)`
)

// EnsurePartitions makes the children of outbox, outbox_progress and outbox_sent for today and the next days. If that fails
// for a day, it goes on with the other days. It waits once, for up to two seconds, for a table that is in use. Any number of processes may call it at
// the same time.
//
// Rows of a day without a child go to the DEFAULT child, so nothing stops if this fails. But a child that is made later has to move them under a
// lock. [migrations.Up] makes the first ones.
func (u *Upkeep) EnsurePartitions(ctx context.Context) error {
	if _, err := u.policy(ctx); err != nil {
		return err
	}
	return outboxdb.Wrap("make partitions of outbox", partition.Make(ctx, u.box.Run, u.box.DB, makePartitions, 0, daysAhead))
}
