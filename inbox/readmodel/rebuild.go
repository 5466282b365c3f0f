package readmodel

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/internal/store"
	leases "github.com/oncebox/oncebox/internal/lease"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/uow"
)

// ErrRebuilding means that another process is rebuilding the read model, or has taken this rebuild over.
var ErrRebuilding = errors.New("readmodel: another process is rebuilding the read model")

// History passes stored events to the function to, in portions of any size: outbox.Store.Published().History, or a function that reads an event store
// or a broker's retained messages. It begins after the checkpoint, "" being the start, and passes with each portion the checkpoint after
// it, a text in a format of its own.
//
// For each ordering key it must keep the order, leave no gaps, also when it goes on from a checkpoint later, and include at least all
// events that a broker may have delivered before the first call. Events that were delivered later may be included or not. Ids, sources,
// tenants and topics must be the same that a consumer gets.
type History func(ctx context.Context, checkpoint string, to func(ctx context.Context, events []event.Envelope, checkpoint string) error) error

// Progress is how far a rebuild has got.
type Progress struct {
	// Events is how many events the history has passed since the reset, and Checkpoint the place after them.
	Events     int64
	Checkpoint string
	// PerSecond is how many of them were handled per second, since this call began.
	PerSecond float64
}

const (
	// bulk is how many replayed messages share a transaction.
	bulk = 100
	// reportEvery is how often progress is logged.
	reportEvery = 10 * time.Second

	// claim takes the lease unless another process has it, and returns what an interrupted rebuild has left.
	claim = `
UPDATE {schema}.inbox_read_model SET owner = $2::uuid, lease_until = clock_timestamp() + $3::interval
WHERE name = $1::text AND (owner IS NULL OR lease_until <= clock_timestamp())
RETURNING generation, state = 'REBUILDING', checkpoint`

	renew = `
UPDATE {schema}.inbox_read_model SET lease_until = clock_timestamp() + $3::interval WHERE name = $1::text AND owner = $2::uuid`

	// saveCheckpoint changes no row if another process has taken the rebuild over.
	saveCheckpoint = `
UPDATE {schema}.inbox_read_model SET checkpoint = $4::text, events = events + $5::bigint,
	lease_until = clock_timestamp() + $3::interval, updated_at = clock_timestamp()
WHERE name = $1::text AND owner = $2::uuid RETURNING events`

	// release ends the lease at once, so that the next Resume does not have to wait until it ends by itself.
	release = `
UPDATE {schema}.inbox_read_model SET owner = NULL, lease_until = '-infinity' WHERE name = $1::text AND owner = $2::uuid`
)

// rebuild is one call of Rebuild or Resume.
type rebuild struct {
	h          *store.Handle
	model      *Model
	name       string
	id         string            // unique for each call, so that a rebuild that another process has taken over cannot be changed any more
	at         *inbox.Generation // the generation at work
	progress   func(Progress)
	began      time.Time
	handed     int64
	reportedAt time.Time
}

// Rebuild makes the read model anew: empty clears it, in a unit that also begins a generation, and then all events of the history are
// handled, in this process. Live messages wait in the database meanwhile. After the rebuild [inbox.Inbox.RunParked] handles them like
// parked messages. progress may be nil; it is called after each portion. The log has a line every 10 s.
//
// The reset waits for running handlers, and new ones wait for the reset: keep empty short. The reset is one transaction. If Rebuild fails
// after it, or its process dies, live messages keep waiting. [Model.Resume], in any process, goes on from the last checkpoint, and Rebuild
// begins again. If several processes call it at once, one runs, and the others get [ErrRebuilding], also for up to Config.ParkedLease after
// the running process has died.
//
// A replayed message that fails is tried again, parked and given up like any other, and the messages behind it in its key wait. A message
// that was parked or a dead letter before the reset is handled in its place if the history has it, and otherwise after the rebuild.
// Messages that an operator had discarded come again.
func (m *Model) Rebuild(
	ctx context.Context, empty func(ctx context.Context, u *uow.Unit) error, history History, progress func(Progress),
) error {
	return m.run(ctx, "rebuild", history, progress, func(ctx context.Context, r *rebuild, _ bool, _ string) (bool, string, error) {
		generation, err := r.reset(ctx, empty)
		if err != nil {
			return false, "", fmt.Errorf("reset: %w", err)
		}
		r.h.Log.InfoContext(ctx, "oncebox: a read model is empty and is being rebuilt", "read_model", m.Name(), "generation", generation)
		return true, "", r.know(ctx)
	})
}

// Resume goes on with a rebuild that was interrupted. It returns nil at once if there is none, so a service may call it at each
// start; see [Model.Rebuild].
func (m *Model) Resume(ctx context.Context, history History, progress func(Progress)) error {
	return m.run(ctx, "resume", history, progress, func(ctx context.Context, r *rebuild, rebuilding bool, checkpoint string) (bool, string, error) {
		if rebuilding {
			r.h.Log.InfoContext(ctx, "oncebox: the rebuild of a read model goes on", "read_model", m.Name(), "checkpoint", checkpoint)
		}
		return rebuilding, checkpoint, nil
	})
}

// run claims the read model, calls begin to choose between a new rebuild and an interrupted one, and does the work.
func (m *Model) run(
	ctx context.Context, call string, history History, progress func(Progress),
	begin func(ctx context.Context, r *rebuild, rebuilding bool, checkpoint string) (todo bool, from string, err error),
) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("readmodel: %s %s: %w", call, m.Name(), err)
		}
	}()
	r := &rebuild{h: m.box.Handle(), model: m, name: m.Name(), id: uuid.NewString(), progress: progress, began: time.Now(), reportedAt: time.Now()}
	// This also enters a new read model, so that there is a row to claim.
	if err := r.know(ctx); err != nil {
		return err
	}
	var (
		generation int64
		rebuilding bool
		checkpoint string
	)
	// Taken before the statement is sent, so that this process never believes in the lease for longer
	// than the server does.
	since := time.Now()
	err = r.h.SQL.QueryRow(ctx, r.h.DB(ctx), claim, []any{r.name, r.id, r.h.ParkedLease}, &generation, &rebuilding, &checkpoint)
	if errors.Is(err, sql.ErrNoRows) {
		return ErrRebuilding
	}
	if err != nil {
		return pgerr.Explain(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_, _ = r.h.SQL.Exec(ctx, r.h.DB(ctx), release, r.name, r.id) // if this fails, the lease ends by itself
	}()
	if err := r.know(ctx); err != nil { // the read model is claimed: no other process resets it
		return err
	}
	lost, err := r.lease(since).Hold(ctx, func(ctx context.Context) error {
		todo, from, err := begin(ctx, r, rebuilding, checkpoint)
		if err != nil || !todo {
			return err
		}
		return r.replay(ctx, history, from)
	})
	if lost && err != nil && !errors.Is(err, ErrRebuilding) {
		return errors.Join(errRebuildLost, err)
	}
	return err
}

// replay handles all events of the history, and then lets the live messages go.
func (r *rebuild) replay(ctx context.Context, history History, from string) error {
	if err := history(ctx, from, r.take); err != nil {
		return err
	}
	if err := r.finish(ctx); err != nil {
		return fmt.Errorf("let the live messages go: %w", err)
	}
	r.h.Log.InfoContext(ctx, "oncebox: a read model is rebuilt, and what waited is being handled", "read_model", r.name,
		"generation", r.at.Number, "took", time.Since(r.began))
	return nil
}

// know reads the present generation.
func (r *rebuild) know(ctx context.Context) (err error) {
	r.at, err = r.model.generations.Look(ctx)
	return err
}

// errRebuildLost is the cause with which a rebuild is cancelled.
var errRebuildLost = fmt.Errorf("%w, or may be by now: its lease was lost", ErrRebuilding)

// lease returns the lease of the read model. since is when the claiming statement was sent.
func (r *rebuild) lease(since time.Time) *leases.Lease {
	return leases.New(&leases.Terms{
		TTL: r.h.ParkedLease, Lost: errRebuildLost,
		Renew: func(ctx context.Context) (ours bool, err error) {
			n, err := r.h.SQL.Exec(ctx, r.h.DB(ctx), renew, r.name, r.id, r.h.ParkedLease)
			return n > 0, err
		},
		Log: r.h.Log, What: "a rebuild", Attrs: []any{"read_model", r.name},
	}, since)
}

// take handles a portion of the history and saves the checkpoint behind it. If the process dies in between, the portion comes again, and
// all of its messages are duplicates.
func (r *rebuild) take(ctx context.Context, events []event.Envelope, checkpoint string) error {
	for chunk := range slices.Chunk(events, bulk) {
		if err := r.at.Replay(ctx, chunk); err != nil {
			return gone(err)
		}
	}
	var total int64
	err := r.h.SQL.QueryRow(ctx, r.h.DB(ctx), saveCheckpoint,
		[]any{r.name, r.id, r.h.ParkedLease, checkpoint, len(events)}, &total)
	if errors.Is(err, sql.ErrNoRows) {
		return ErrRebuilding
	}
	if err != nil {
		return fmt.Errorf("save checkpoint %q: %w", checkpoint, pgerr.Explain(err))
	}
	r.handed += int64(len(events))
	r.report(ctx, Progress{Events: total, Checkpoint: checkpoint, PerSecond: float64(r.handed) / time.Since(r.began).Seconds()})
	return nil
}

// report calls the service's function each time, and logs at most once per reportEvery.
func (r *rebuild) report(ctx context.Context, done Progress) {
	if r.progress != nil {
		r.progress(done)
	}
	if time.Since(r.reportedAt) >= reportEvery {
		r.reportedAt = time.Now()
		r.h.Log.InfoContext(ctx, "oncebox: a read model is being rebuilt", "read_model", r.name,
			"events", done.Events, "per_second", int(done.PerSecond), "checkpoint", done.Checkpoint)
	}
}

// gone turns an error about the generation into ErrRebuilding: a generation ends only if another rebuild has begun the next one, or has
// finished this.
func gone(err error) error {
	if errors.Is(err, store.ErrGeneration) {
		return errors.Join(ErrRebuilding, err)
	}
	return err
}
