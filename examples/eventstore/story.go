package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uptrace/bun"
	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/uow"
)

// story plays the users of the bank, and prints the effects.
type story struct {
	*service

	disk *disk
	cfg  config.Config

	mu  sync.Mutex // two goroutines may print
	out io.Writer
}

func (s *story) tell(ctx context.Context) error {
	for _, chapter := range []func(context.Context) error{
		s.oneCommit, s.failure, s.twoTellers, s.longAgo, s.history, s.rebuild,
	} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) sayf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, format+"\n", args...)
}

func (s *story) oneCommit(ctx context.Context) error {
	s.sayf("\n1. Ann opens an account, deposits 100.00 and withdraws 30.00: three events, one commit, two sinks.")
	err := s.bank.change(ctx, "ann", func(_ context.Context, a *Account) error {
		return errors.Join(a.Open("Ann"), a.Deposit(10_000), a.Withdraw(3_000))
	})
	if err != nil {
		return err
	}
	if err := s.settled(ctx, "ann", 7_000); err != nil {
		return err
	}
	return s.print(ctx, "ann")
}

func (s *story) failure(ctx context.Context) error {
	s.sayf("\n2. The disk is full, which is noticed after both sinks have written.")
	s.disk.full.Store(true)
	err := s.bank.change(ctx, "ann", func(_ context.Context, a *Account) error { return a.Withdraw(7_000) })
	s.disk.full.Store(false)
	s.sayf("   %v", err)
	return s.print(ctx, "ann")
}

func (s *story) twoTellers(ctx context.Context) error {
	s.sayf("\n3. Two tellers serve Ann at once. Both have loaded version 3 before either of them commits.")
	var arrived atomic.Int32
	both := make(chan struct{})
	group, tellers := errgroup.WithContext(ctx)
	for name, cents := range map[string]int64{"Tim": 500, "Tom": 250} {
		tries := 0
		group.Go(func() error {
			return s.bank.change(tellers, "ann", func(ctx context.Context, a *Account) error {
				tries++
				s.sayf("   %s, try %d: the account is at version %d and holds %s", name, tries, a.Version, money(a.Cents))
				if tries == 1 && arrived.Add(1) == 2 {
					close(both)
				}
				select {
				case <-both:
					return a.Deposit(cents)
				case <-ctx.Done():
					return ctx.Err()
				}
			})
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	s.sayf("   The second one met the first one's version, and was run again. Nothing is lost:")
	return s.print(ctx, "ann")
}

// credited is what the first version of this program stored.
type credited struct {
	Euros int64 `json:"euros"`
}

func (credited) EventType() string { return "account.credited" }

func (s *story) longAgo(ctx context.Context) error {
	s.sayf("\n4. The first version of this program is still running somewhere. It knows account.credited, in euros.")
	cfg := s.cfg.UoW
	cfg.Registry = event.NewRegistry()
	event.Register[Opened](cfg.Registry)
	event.Register[credited](cfg.Registry)
	former := uow.New(s.db, &cfg, outbox.NewStore(s.db, &s.cfg.Outbox), s.store)
	err := former.Do(ctx, func(_ context.Context, u *uow.Unit) error {
		a := &Account{ID: "bob"}
		a.Record(Opened{Owner: "Bob"})
		a.Record(credited{Euros: 42})
		u.Track(a)
		return nil
	})
	if err != nil {
		return err
	}
	err = s.bank.change(ctx, "bob", func(_ context.Context, a *Account) error {
		s.sayf("   This version loads it through alias and upcaster: Bob has %s, and withdraws 2.00.", money(a.Cents))
		return a.Withdraw(200)
	})
	if err != nil {
		return err
	}
	return s.print(ctx, "bob")
}

func (s *story) history(ctx context.Context) error {
	const accounts, deposits = 100, 24
	began := time.Now()
	for n := range accounts {
		err := s.bank.change(ctx, fmt.Sprintf("customer-%03d", n), func(_ context.Context, a *Account) error {
			errs := []error{a.Open("somebody")}
			for i := range deposits {
				errs = append(errs, a.Deposit(int64(100*n+i)))
			}
			return errors.Join(errs...)
		})
		if err != nil {
			return err
		}
	}
	s.sayf("\n5. %d customers more, with %d events: stored, and in the outbox, after %s.",
		accounts, accounts*(1+deposits), time.Since(began).Round(time.Millisecond))
	return nil
}

func (s *story) rebuild(ctx context.Context) error {
	s.sayf("\n6. The read model is damaged and made anew from the store, while the consumer goes on.")
	if _, err := s.db.ExecContext(ctx, `UPDATE balances SET cents = 0`); err != nil {
		return err
	}
	if err := s.balances.rebuild(ctx, s.store, func(done, total int64) {
		if done%500 == 0 || done == total {
			s.sayf("   %6d of %d events  %3d %%", done, total, 100*done/total)
		}
	}); err != nil {
		return err
	}
	for id, cents := range map[string]int64{"ann": 7_750, "bob": 4_000, "customer-099": 237_876} {
		if err := s.settled(ctx, id, cents); err != nil {
			return err
		}
	}
	var sum int64
	if err := s.db.NewRaw(`SELECT sum(cents) FROM balances`).Scan(ctx, &sum); err != nil {
		return err
	}
	s.sayf("   Ann has 77.50, Bob 40.00, and all of them together %s.", money(sum))
	return nil
}

// print shows a stream beside what the outbox has of it.
func (s *story) print(ctx context.Context, id string) error {
	var rows []struct {
		Version, SchemaVersion     int64
		EventType, Payload, Status string
	}
	err := s.db.NewRaw(`SELECT version, s.event_type, s.schema_version, convert_from(s.payload, 'UTF8') AS payload, status
		FROM stream_events s LEFT JOIN oncebox.outbox_messages o USING (id) WHERE s.aggregate_id = ? ORDER BY version`, id).Scan(ctx, &rows)
	for _, r := range rows {
		s.sayf("     %-4s %d  %-18s v%d  %-16s outbox: %s", id, r.Version, r.EventType, r.SchemaVersion, r.Payload, r.Status)
	}
	return err
}

// settled waits until the read model shows the balance.
func (s *story) settled(ctx context.Context, id string, cents int64) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var shown int64
		err := s.db.NewRaw(`SELECT coalesce(sum(cents), 0) FROM balances WHERE account = ?`, id).Scan(ctx, &shown)
		if err != nil || shown == cents {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the read model shows %s for %s instead of %s: %w", money(shown), id, money(cents), context.Cause(ctx))
		}
	}
}

func money(cents int64) string { return fmt.Sprintf("%d.%02d", cents/100, cents%100) }

// disk is a sink that fails while it is "full", for the story.
type disk struct{ full atomic.Bool }

func (d *disk) Flush(context.Context, bun.IDB, []event.Envelope) error {
	if d.full.Load() {
		return errors.New("the disk is full")
	}
	return nil
}
