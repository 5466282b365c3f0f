package uow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/uow"
)

var errTooLate = errors.New("the connection cannot do that")

// sendLast inserts an event, and a row with the statements that are sent last. known gives the unit its id before.
func (s *saver) sendLast(t *testing.T, known bool, last string) error {
	t.Helper()
	return s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		if err := u.Add("thing", json.RawMessage(`{}`)); err != nil {
			return err
		}
		var xid string
		if err := u.DB().QueryRowContext(ctx, "SELECT pg_current_xact_id()::text").Scan(&xid); err != nil {
			return err
		}
		if known {
			uow.Inside(u).Identified(xid)
		}
		b := &pgsql.Batch{}
		b.Queue(last, "last")
		if !uow.Inside(u).SendLast(b) {
			return errTooLate
		}
		return nil
	})
}

func TestSendLast(t *testing.T) {
	eachPool(t, func(t *testing.T, s *saver) {
		for name, known := range map[string]bool{"with COMMIT": true, "before COMMIT": false} {
			before := len(s.sunk(t))
			require.NoError(t, s.sendLast(t, known, "INSERT INTO sunk (line) VALUES ($1)"), name)
			require.Len(t, s.sunk(t), before+2, "the event, and what was sent last")
			require.Error(t, s.sendLast(t, known, "INSERT INTO sunk (nothing) VALUES ($1)"), name)
			require.Len(t, s.sunk(t), before+2, "what is sent last decides")
		}
	})
}

// last is a batch that notes texts.
func last(texts ...string) *pgsql.Batch {
	b := &pgsql.Batch{}
	for _, text := range texts {
		b.Queue("INSERT INTO notes (text) VALUES ($1)", text)
	}
	return b
}

// A caller does not know which others there are, and what becomes of the savepoint.
func TestSendLastByMany(t *testing.T) {
	for name, before := range map[string]func(func(context.Context, *uow.Unit) error) func(context.Context, *uow.Unit) error{
		"with COMMIT":   identified,
		"before COMMIT": func(fn func(context.Context, *uow.Unit) error) func(context.Context, *uow.Unit) error { return fn },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSaver(t, nil, func(s *service) *bun.DB { return pipelined(t, s.DSN) })
			var ended *uow.Unit
			tries := 0
			require.NoError(t, s.manager(quick(), s.pool, s.batch).Do(t.Context(), before(func(ctx context.Context, u *uow.Unit) error {
				require.True(t, uow.Inside(u).SendLast(last("one", "two")))
				if tries++; tries == 1 {
					return uow.ErrConflict // with it, what the try has queued is gone
				}
				return note(ctx, u, "first")
			})))
			require.Equal(t, []string{"first", "one", "two"}, s.notes(t))

			require.NoError(t, s.units.Do(t.Context(), before(func(ctx context.Context, u *uow.Unit) error {
				require.True(t, uow.Inside(u).SendLast(last("three")))
				_ = s.units.Do(ctx, func(_ context.Context, inner *uow.Unit) error {
					require.True(t, uow.Inside(inner).SendLast(last("never")))
					require.True(t, uow.Inside(u).SendLast(last("nor this"))) // the innermost savepoint's, as all is
					return errRefused
				})
				require.NoError(t, s.units.Do(ctx, func(_ context.Context, u *uow.Unit) error {
					require.True(t, uow.Inside(u).SendLast(last("four")))
					ended = u
					return nil
				}))
				require.False(t, uow.Inside(ended).SendLast(last("too late")))
				require.True(t, uow.Inside(u).SendLast(last("five")))
				return nil
			})))
			require.False(t, uow.Inside(ended).SendLast(last("too late")))
			require.Equal(t, []string{"first", "one", "two", "three", "four", "five"}, s.notes(t))
		})
	}
}

// Statements that are sent last follow all sinks, however many there are.
func TestSendLastGoesBehindTheSinks(t *testing.T) {
	for name, sinks := range map[string]func(s *saver) []uow.Sink{
		"one, with COMMIT": func(s *saver) []uow.Sink { return []uow.Sink{s.batch} },
		"one, by itself":   func(s *saver) []uow.Sink { return []uow.Sink{s.sink} },
		"two":              func(s *saver) []uow.Sink { return []uow.Sink{s.sink, s.batch} },
		"a probe sink":     func(s *saver) []uow.Sink { return []uow.Sink{s.sink, &probeSink{tableSink: s.sink}} },
	} {
		for _, known := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, known %t", name, known), func(t *testing.T) {
				s := newSaver(t, nil, func(s *service) *bun.DB { return pipelined(t, s.DSN) })
				s.units = s.manager(nil, s.pool, sinks(s)...)
				require.NoError(t, s.sendLast(t, known, "INSERT INTO sunk (line) SELECT $1 || count(*) FROM sunk"))
				sunk := s.sunk(t)
				require.Equal(t, fmt.Sprint("last", len(sunk)-1), sunk[len(sunk)-1])
				require.Error(t, s.sendLast(t, known, "INSERT INTO sunk (nothing) VALUES ($1)"))
				require.Len(t, s.sunk(t), len(sunk), "what is sent last decides")
			})
		}
	}
}

// Without anything else the last statement is the first one, and its answer is all that proves that it was stored.
func TestSendLastAlone(t *testing.T) {
	s := newSaver(t, nil, func(s *service) *bun.DB { return pipelined(t, s.DSN) })
	require.NoError(t, s.units.Do(t.Context(), func(_ context.Context, u *uow.Unit) error {
		require.True(t, uow.Inside(u).SendLast(last("x")))
		return nil
	}))
	require.Equal(t, []string{"x"}, s.notes(t))
}
