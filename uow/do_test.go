package uow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/retry"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

func TestCommit(t *testing.T) {
	s := newService(t, nil)
	a, b := newAccount("a"), newAccount("b", "one")
	a.Version = 7
	err := s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		u.Track(a, b)
		a.Record(changed{"two"})
		require.NoError(t, u.Add("reports", json.RawMessage(`{"Text":"three"}`)))
		a.Record(changed{"four"}) // after it was tracked: what counts is the end
		u.Track(b)                // twice is once
		return note(ctx, u, "x")
	})
	require.NoError(t, err)
	require.Equal(t, []string{"x"}, s.notes(t))
	want := []string{"account a v8 two", "account a v9 four", "account b v1 one", "reports three"}
	require.Equal(t, want, s.sunk(t), "aggregates in the order in which they were tracked, each with its versions")
	require.Equal(t, want, s.sink.committed)
	require.Empty(t, a.RecordedEvents(), "cleared after COMMIT")
	require.Empty(t, b.RecordedEvents())
	require.EqualValues(t, 7, a.AggregateVersion(), "the version is the aggregate's own")
	require.Zero(t, s.Stats().InUse)
	for _, e := range s.sink.envelopes {
		require.NoError(t, e.Validate())
		require.Equal(t, "test", e.Source)
		require.Equal(t, "default", e.TenantID)
	}
}

func TestErrorRollsBack(t *testing.T) {
	s := newService(t, nil)
	a := newAccount("a", "one")
	err := s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		u.Track(a)
		u.AfterCommit(func(context.Context) { t.Error("never on rollback") })
		require.NoError(t, note(ctx, u, "x"))
		return errRefused
	})
	require.Equal(t, errRefused, err, "the function's own error, as it is")
	s.requireNothing(t)
	require.Len(t, a.RecordedEvents(), 1, "not committed, not cleared")
}

func TestPanicRollsBackAndGoesOn(t *testing.T) {
	s := newService(t, nil)
	for _, value := range []any{"boom", errRefused} {
		require.PanicsWithValue(t, value, func() {
			_ = s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
				u.Track(newAccount("a", "one"))
				u.AfterCommit(func(context.Context) { t.Error("never on rollback") })
				require.NoError(t, note(ctx, u, "x"))
				panic(value)
			})
		})
		s.requireNothing(t)
	}
}

// However a unit ends, its connection goes back into the pool and is as good as before.
func TestConnectionIsUsedAgain(t *testing.T) {
	s := newService(t, nil)
	s.SetMaxOpenConns(1)
	pid := func() []string { return lines(t, s, "SELECT pg_backend_pid()::text") }
	first := pid()
	for name, end := range map[string]func() error{
		"committed":   func() error { return nil },
		"rolled back": func() error { return errRefused },
		"panicked":    func() error { panic(errRefused) },
	} {
		_ = recovered(func() error {
			return s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
				require.NoError(t, note(ctx, u, name))
				return end()
			})
		})
		require.Equal(t, first, pid(), name)
	}
}

// t.FailNow and others leave a function by runtime.Goexit: neither a return nor a panic.
func TestGoexitRollsBack(t *testing.T) {
	s := newService(t, nil)
	for _, nested := range []bool{false, true} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
				u.Track(newAccount("a", "one"))
				if nested {
					return s.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
						_ = note(ctx, u, "x")
						runtime.Goexit()
						return nil
					})
				}
				_ = note(ctx, u, "x")
				runtime.Goexit()
				return nil
			})
		}()
		<-done
		s.requireNothing(t)
	}
}

func TestEventsWithoutASink(t *testing.T) {
	s := newService(t, nil)
	units := s.manager(nil, s.DB.DB)
	for name, emit := range map[string]func(u *uow.Unit) error{
		"recorded": func(u *uow.Unit) error { u.Track(newAccount("a", "one")); return nil },
		"added":    func(u *uow.Unit) error { return u.Add("reports", []byte("x")) },
	} {
		t.Run(name, func(t *testing.T) {
			err := units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
				require.NoError(t, note(ctx, u, "x"))
				return emit(u)
			})
			require.ErrorIs(t, err, uow.ErrNoSink)
			s.requireNothing(t)
		})
	}
	require.NoError(t, units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		u.Track(newAccount("a"))
		return note(ctx, u, "x")
	}), "without events no sink is needed")
	require.Equal(t, []string{"x"}, s.notes(t))
}

func TestUnregisteredEventFailsTheFlush(t *testing.T) {
	s := newService(t, nil)
	a := newAccount("a", "one")
	a.Record(unregistered{})
	err := s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		u.Track(a)
		return note(ctx, u, "x")
	})
	require.ErrorIs(t, err, event.ErrUnknownType)
	require.ErrorContains(t, err, "uow: flush: account a: ")
	s.requireNothing(t)
	require.Len(t, a.RecordedEvents(), 2)
}

// The caller may handle the error about an added event, and the unit may go on.
func TestRefusedAddLosesNothingElse(t *testing.T) {
	s := newService(t, &uow.Config{MaxPayload: 100})
	require.NoError(t, s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		require.ErrorIs(t, u.Add("reports", make([]byte, 101)), event.ErrInvalid)
		require.ErrorIs(t, u.Add("a\x00", []byte("x")), event.ErrInvalid)
		require.ErrorContains(t, u.Add("", []byte("x")), "uow: Add: ")
		require.ErrorIs(t, u.Add("reports", unregistered{}), event.ErrUnknownType)
		return u.Add("reports", []byte("fine"))
	}))
	require.Equal(t, []string{"reports fine"}, s.sunk(t))
}

func TestSinksAreCalledInOrderAndOnce(t *testing.T) {
	s := newService(t, nil)
	second := &tableSink{before: func(ctx context.Context, tx bun.IDB) error {
		require.Equal(t, []string{"account a v1 one"}, lines(t, tx, "SELECT line FROM sunk"), "the first sink's row is there")
		return nil
	}}
	units := s.manager(nil, s.DB.DB, s.sink, second)
	require.NoError(t, units.Do(t.Context(), func(_ context.Context, u *uow.Unit) error {
		u.Track(newAccount("a", "one"))
		return nil
	}))
	require.Len(t, s.sunk(t), 2)
	require.EqualValues(t, 1, second.envelopes[0].Sequence)
	require.Len(t, s.sink.committed, 1)
	require.Len(t, second.committed, 1)

	second.before = func(context.Context, bun.IDB) error { return errRefused }
	require.ErrorIs(t, units.Do(t.Context(), func(_ context.Context, u *uow.Unit) error {
		u.Track(newAccount("b", "two"))
		return nil
	}), errRefused)
	require.Len(t, s.sunk(t), 2, "neither sink's row is left by a failure after either")
}

// repeater is a sink that has seen everything but the last event in an earlier unit.
type repeater struct{ *tableSink }

func (s repeater) Flush(ctx context.Context, tx bun.IDB, evs []event.Envelope) error {
	for i := range evs[:len(evs)-1] {
		evs[i].ID = fmt.Sprint("earlier ", i)
	}
	return s.tableSink.Flush(ctx, tx, evs[len(evs)-1:])
}

// An event that the first sink did not store because it repeats an earlier one does not reach the second
// sink under the earlier one's id.
func TestRepeatsDoNotReachTheSinksBehind(t *testing.T) {
	s := newService(t, nil)
	second, third := &tableSink{}, &tableSink{}
	units := s.manager(nil, s.DB.DB, repeater{s.sink}, second, third)
	require.NoError(t, units.Do(t.Context(), func(_ context.Context, u *uow.Unit) error {
		u.Track(newAccount("a", "one", "two", "three"))
		return nil
	}))
	require.Equal(t, []string{"account a v3 three", "account a v3 three", "account a v3 three"}, s.sunk(t))
	require.Len(t, s.sink.committed, 3, "what was announced")
}

func TestPanicOfASinkRollsBack(t *testing.T) {
	s := newService(t, nil)
	s.sink.after = func(context.Context, bun.IDB) error { panic("sink") }
	require.PanicsWithValue(t, "sink", func() {
		_ = s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
			u.Track(newAccount("a", "one"))
			return note(ctx, u, "x")
		})
	})
	s.requireNothing(t)
}

// COMMIT itself fails. Nothing was stored, the aggregate keeps its events, and the same instance can be saved again.
func TestEventsAreClearedOnlyAfterCommit(t *testing.T) {
	s := newService(t, nil)
	a := newAccount("a", "one")
	change := func(text string) error {
		return s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
			u.Track(a)
			u.AfterCommit(func(context.Context) { require.Equal(t, "fine", text) })
			if err := note(ctx, u, text); err != nil {
				return err
			}
			return note(ctx, u, "other")
		})
	}
	err := change("other") // the same text twice: the constraint is checked at COMMIT
	require.Equal(t, pgerr.UniqueViolation, pgerr.Code(err))
	require.ErrorContains(t, err, "uow: commit: ")
	s.requireNothing(t)
	require.Len(t, a.RecordedEvents(), 1)

	require.NoError(t, change("fine"))
	require.Equal(t, []string{"account a v1 one"}, s.sunk(t))
	require.Empty(t, a.RecordedEvents())
}

func TestDB(t *testing.T) {
	s := newService(t, nil)
	require.Same(t, s.DB.DB, s.units.DB(t.Context()), "outside a unit: the pool")
	_, within := uow.FromContext(t.Context())
	require.False(t, within)

	require.ErrorIs(t, s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		found, within := uow.FromContext(ctx)
		require.True(t, within)
		require.True(t, uow.Same(u, found))
		require.Equal(t, u.DB(), s.units.DB(ctx))
		_, err := s.units.DB(ctx).NewRaw("INSERT INTO notes (text) VALUES ('x')").Exec(ctx)
		require.NoError(t, err)
		return errRefused
	}), errRefused)
	s.requireNothing(t)
}

func TestEndedUnitTakesNothing(t *testing.T) {
	s := newService(t, nil)
	for name, end := range map[string]error{"committed": nil, "rolled back": errRefused} {
		t.Run(name, func(t *testing.T) {
			var root, inner *uow.Unit
			var ctx context.Context
			check := func(u *uow.Unit) {
				t.Helper()
				require.PanicsWithValue(t, "uow: Track: the unit has ended", func() { u.Track(newAccount("a", "late")) })
				require.PanicsWithValue(t, "uow: AfterCommit: the unit has ended", func() { u.AfterCommit(func(context.Context) {}) })
				require.ErrorContains(t, u.Add("reports", []byte("x")), "uow: Add: the unit has ended")
			}
			err := s.units.Do(t.Context(), func(outer context.Context, u *uow.Unit) error {
				root = u
				require.Equal(t, end, s.units.Do(outer, func(c context.Context, u *uow.Unit) error {
					inner, ctx = u, c
					return end
				}))
				check(inner)
				found, within := uow.FromContext(ctx)
				require.True(t, within)
				require.True(t, uow.Same(root, found), "the context of an inner unit that ended means the one around it")
				return end
			})
			require.Equal(t, end, err)
			check(root)
			check(inner)
			_, within := uow.FromContext(ctx)
			require.False(t, within)
			require.Same(t, s.DB.DB, s.units.DB(ctx), "a context that outlived its unit means the pool")
		})
	}
	require.Empty(t, s.sunk(t))
}

// byValue is an aggregate of value type that cannot be compared.
type byValue struct {
	*event.Recorder
	Items []string
}

func (byValue) AggregateType() string   { return "value" }
func (byValue) AggregateID() string     { return "1" }
func (byValue) AggregateVersion() int64 { return 0 }

func TestTrackOfWhatIsNoAggregate(t *testing.T) {
	s := newService(t, nil)
	for _, a := range []event.Aggregate{nil, (*account)(nil), byValue{Recorder: &event.Recorder{}}} {
		err := s.units.Do(t.Context(), func(_ context.Context, u *uow.Unit) (err error) {
			defer func() {
				require.Contains(t, recover(), "is not a pointer to an aggregate")
				err = errRefused
			}()
			u.Track(newAccount("a", "one"), a)
			return nil
		})
		require.ErrorIs(t, err, errRefused)
	}
	s.requireNothing(t)

	v := byValue{Recorder: &event.Recorder{}}
	v.Record(changed{"by pointer"})
	require.NoError(t, s.units.Do(t.Context(), func(_ context.Context, u *uow.Unit) error { u.Track(&v); return nil }))
	require.Equal(t, []string{"value 1 v1 by pointer"}, s.sunk(t))
}

// Tenant and metadata are taken from the context in which the unit was given to the function.
func TestContextOfEvents(t *testing.T) {
	s := newService(t, nil)
	ctx := event.WithMetadata(event.WithTenant(t.Context(), "outer"), event.Metadata{"k": "outer"})
	require.NoError(t, s.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		u.Track(newAccount("a", "one"))
		inner := event.WithMetadata(event.WithTenant(ctx, "inner"), event.Metadata{"k": "inner"})
		return s.units.Do(inner, func(_ context.Context, u *uow.Unit) error {
			u.Track(newAccount("b", "two"))
			return u.Add("reports", []byte("three"))
		})
	}))
	require.Len(t, s.sink.envelopes, 3)
	for i, want := range []string{"outer", "inner", "inner"} {
		require.Equal(t, want, s.sink.envelopes[i].TenantID)
		require.Equal(t, want, s.sink.envelopes[i].Metadata["k"])
	}
}

func TestTopics(t *testing.T) {
	s := newService(t, &uow.Config{TopicPrefix: "shop."})
	emit := func(units *uow.Manager) string {
		require.NoError(t, units.Do(t.Context(), func(_ context.Context, u *uow.Unit) error {
			u.Track(newAccount("a", "one"))
			return nil
		}))
		return s.sink.envelopes[0].Topic
	}
	require.Equal(t, "shop.account", emit(s.units))
	topic := func(event.Envelope) string { return "mine" }
	require.Equal(t, "mine", emit(s.manager(&uow.Config{Topic: topic}, s.DB.DB, s.sink)))
	require.Equal(t, "shop.mine", emit(s.manager(&uow.Config{Topic: topic, TopicPrefix: "shop."}, s.DB.DB, s.sink)))
	for name, want := range map[string]string{"order": "shop.order", "/order": "order", "//order": "/order", "/": "", "": ""} {
		require.Equal(t, want, s.units.Topic(name))
	}
}

func TestOptions(t *testing.T) {
	s := newService(t, nil)
	require.NoError(t, s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		require.Equal(t, []string{"repeatable read"}, lines(t, u.DB(), "SHOW transaction_isolation"))
		require.Equal(t, []string{"on"}, lines(t, u.DB(), "SHOW transaction_read_only"))
		return nil
	}, uow.WithIsolation(4), uow.WithReadOnly()))
	err := s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error { return note(ctx, u, "x") }, uow.WithReadOnly())
	require.Equal(t, "25006", pgerr.Code(err))
	require.NoError(t, s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		require.Equal(t, []string{"read committed"}, lines(t, u.DB(), "SHOW transaction_isolation"), "the option was for one call")
		return nil
	}))
}

func TestUnreachableDatabase(t *testing.T) {
	s := newService(t, nil)
	pool := s.Another(t)
	require.NoError(t, pool.Close())
	err := s.manager(nil, pool).Do(t.Context(), func(context.Context, *uow.Unit) error {
		t.Error("there is no transaction to run in")
		return nil
	})
	require.ErrorContains(t, err, "uow: get a connection to the database: ")
}

func TestMetrics(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	s := newService(t, &uow.Config{
		Telemetry: telemetry.Config{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))},
		Retry:     uow.RetryConfig{MaxAttempts: 3, Policy: retry.Policy{Delay: time.Nanosecond}},
	})
	_ = s.units.Do(t.Context(), func(context.Context, *uow.Unit) error { return nil })
	_ = s.units.Do(t.Context(), func(_ context.Context, u *uow.Unit) error {
		u.AfterCommit(func(context.Context) { panic("stays committed") })
		return nil
	})
	_ = s.units.Do(t.Context(), func(context.Context, *uow.Unit) error { return errRefused })
	_ = s.units.Do(t.Context(), func(context.Context, *uow.Unit) error { return uow.ErrConflict })
	func() {
		defer func() { _ = recover() }()
		_ = s.units.Do(t.Context(), func(context.Context, *uow.Unit) error { panic("boom") })
	}()

	var got metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &got))
	counts := map[string]int64{}
	for _, m := range got.ScopeMetrics[0].Metrics {
		for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
			outcome, _ := p.Attributes.Value("outcome")
			counts[m.Name+" "+outcome.AsString()] = p.Value
		}
	}
	require.Equal(t, map[string]int64{
		"oncebox.uow.units committed": 2, "oncebox.uow.units rolled_back": 5, "oncebox.uow.units unknown": 0, "oncebox.uow.retries ": 2,
	}, counts)
}

func TestErrors(t *testing.T) {
	conflict := &uow.ConflictError{Type: "account", ID: "7", Expected: 1, Found: 2}
	require.ErrorIs(t, conflict, uow.ErrConflict)
	require.EqualError(t, conflict, "uow: account 7: expected version 1, found 2")
	unknown := &uow.CommitUnknownError{XID: "77", Err: errRefused}
	require.ErrorIs(t, unknown, uow.ErrCommitUnknown)
	require.ErrorIs(t, unknown, errRefused)
	require.ErrorContains(t, unknown, "look for its data")
	require.NotErrorIs(t, errors.Join(unknown, conflict), uow.ErrStale)
}
