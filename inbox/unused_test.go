package inbox_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

// A handler that changes the database through a pool of its own does so again with each try. The log warns once.
func TestHandlerThatNeverUsesItsUnitIsToldOf(t *testing.T) {
	t.Parallel()
	const line = "a handler succeeded without using its unit of work"
	w := newWorld(t)
	own := func(ctx context.Context, _ *messaging.Message) error {
		_, err := w.db.Exec("INSERT INTO effects VALUES ('own pool')")
		return err
	}
	bulk := func(ctx context.Context, msgs []*messaging.Message) error { return own(ctx, msgs[0]) }
	router := messaging.NewRouter(event.NewRegistry())
	router.Ignore("thing.happened")
	for name, test := range map[string]struct {
		wrap func(box *inbox.Inbox) messaging.Handler
		told int
	}{
		"a pool of its own": {func(b *inbox.Inbox) messaging.Handler { return b.Wrap("a", messaging.HandlerFunc(own)) }, 1},
		"a bulk writer":     {func(b *inbox.Inbox) messaging.Handler { return b.WrapBatch("b", bulk) }, 1},
		"it is meant": {func(b *inbox.Inbox) messaging.Handler {
			return b.Wrap("c", messaging.HandlerFunc(own), inbox.WithoutUnit())
		}, 0},
		"the unit":               {func(b *inbox.Inbox) messaging.Handler { return b.Wrap("d", messaging.HandlerFunc(w.effect)) }, 0},
		"a type without handler": {func(b *inbox.Inbox) messaging.Handler { return b.Wrap("e", messaging.NewRouter(event.NewRegistry())) }, 0},
		"a type that is ignored": {func(b *inbox.Inbox) messaging.Handler { return b.Wrap("f", router) }, 0},
		"leased":                 {func(b *inbox.Inbox) messaging.Handler { return b.WrapLeased("g", messaging.HandlerFunc(own)) }, 0},
		"it failed": {func(b *inbox.Inbox) messaging.Handler {
			return b.Wrap("h", messaging.HandlerFunc(func(context.Context, *messaging.Message) error { return errors.New("no") }))
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			book := &logbook.Book{}
			h := test.wrap(inbox.New(uow.New(w.db.DB, &uow.Config{Source: "test",
				Telemetry: telemetry.Config{Logger: quiet()}}), &inbox.Config{Telemetry: telemetry.Config{Logger: book.Logger()}}))
			for _, id := range []string{"1", "2"} {
				m := ordered(id+name, "o-"+id+name)
				m.Type = "thing.happened"
				_ = h.Handle(t.Context(), m)
			}
			require.Equal(t, test.told, book.Count(line), book.String())
		})
	}
}
