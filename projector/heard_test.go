package projector_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/uow"
)

// An event of a writer that is no Go program, or does not call Wake, waits no longer beside events that are announced all the time.
func TestASilentWriterBesideOthersThatAreHeard(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	cfg := sleepy()
	cfg.SleepBusy, cfg.Workers = 200*time.Millisecond, 1
	f.run(f.projector(cfg))
	units := uow.New(f.db.Another(t), &uow.Config{Source: "test"}, f.store)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		for i := 0; ctx.Err() == nil; i++ {
			err := units.Do(ctx, func(_ context.Context, u *uow.Unit) error {
				return u.Add("order", []byte("1"), event.WithAggregate("order", "loud", int64(i+1)), event.WithType("loud"))
			})
			if err != nil && ctx.Err() == nil {
				done <- err
			}
		}
		close(done)
	}()
	f.eventually("the loud one is published", f.published("loud"))
	for i := range 5 {
		name := fmt.Sprintf("silent%d", i)
		f.add(name, name)
		f.eventually(name+" is published", f.published(name))
	}
	cancel()
	require.NoError(t, <-done)
}

// Rows that a full batch leaves behind leave with the next batch, although no notification names their lanes again.
func TestARestIsNotForgotten(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	cfg := sleepy()
	cfg.BatchSize = 3
	stop := f.run(f.projector(cfg))
	f.listener()
	units := uow.New(f.db.Another(t), &uow.Config{Source: "test"}, f.store)
	require.NoError(t, units.Do(t.Context(), func(_ context.Context, u *uow.Unit) error {
		for i := range 200 {
			key := fmt.Sprintf("k%d", i%20)
			if err := u.Add("order", []byte("1"), event.WithOrderingKey(key), event.WithType(fmt.Sprintf("e%d", i))); err != nil {
				return err
			}
		}
		return nil
	}))
	f.eventually("all are published", func() bool { return len(f.pub.types()) >= 200 })
	stop()
}
