package streams_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/examples/eventstore/streams"
	"github.com/oncebox/oncebox/uow"
)

// upcast turns the first version's text into a number.
func upcast(payload []byte) ([]byte, error) {
	var old grown
	if err := json.Unmarshal(payload, &old); err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(old.By)
	if err != nil {
		return nil, err
	}
	return json.Marshal(added{n})
}

func TestLoadUnderstandsFormerVersions(t *testing.T) {
	s := newService(t, event.WithVersion(2), event.WithAliases("counter.grown"), event.WithUpcaster(1, upcast))
	units := s.units(s.DB.DB, nil, s.store)
	record := func(tenant string, events ...event.Event) {
		require.NoError(t, units.Do(event.WithTenant(context.Background(), tenant), func(_ context.Context, u *uow.Unit) error {
			c := &counter{id: "c-1"}
			for _, e := range events {
				c.Record(e)
			}
			u.Track(c)
			return nil
		}))
	}
	record("", grown{"7"}, added{8})
	record("acme", added{9})

	c, err := s.load(t.Context(), s.DB, "c-1")
	require.NoError(t, err)
	require.Equal(t, int64(2), c.version)
	require.Equal(t, []event.Event{added{7}, added{8}}, c.all)

	c, err = s.load(event.WithTenant(t.Context(), "acme"), s.DB, "c-1")
	require.NoError(t, err)
	require.Equal(t, []event.Event{added{9}}, c.all, "tenants have streams of their own")

	c, err = s.load(t.Context(), s.DB, "c-2")
	require.NoError(t, err)
	require.Zero(t, c.version, "nothing has happened to it")

	var replayed []event.Event
	require.NoError(t, s.store.Replay(t.Context(), s.DB, func(_ context.Context, e event.Envelope) error {
		decoded, err := s.registry().Decode(&e)
		replayed = append(replayed, decoded)
		return err
	}))
	require.Equal(t, []event.Event{added{9}, added{7}, added{8}}, replayed, "acme is before default")
}

func (*service) registry() *event.Registry {
	r := event.NewRegistry()
	event.Register[added](r, event.WithVersion(2), event.WithAliases("counter.grown"), event.WithUpcaster(1, upcast))
	return r
}

// A stream that cannot be read as a whole is not read in part.
func TestLoadRefuses(t *testing.T) {
	s := newService(t, event.WithVersion(2), event.WithUpcaster(1, upcast))
	units := s.units(s.DB.DB, nil, s.store)
	require.NoError(t, units.Do(context.Background(), add("gap", 3)))
	_, err := s.ExecContext(t.Context(), "DELETE FROM stream_events WHERE version = 2")
	require.NoError(t, err)
	_, err = s.load(t.Context(), s.DB, "gap")
	require.ErrorContains(t, err, "version 3 follows version 1")

	require.NoError(t, units.Do(context.Background(), func(_ context.Context, u *uow.Unit) error {
		c := &counter{id: "unknown"}
		c.Record(grown{"7"})
		u.Track(c)
		return nil
	}))
	_, err = s.load(t.Context(), s.DB, "unknown")
	require.ErrorIs(t, err, event.ErrUnknownType)
}

func TestReplayReadsAllPagesInOrder(t *testing.T) {
	s := newService(t, event.WithVersion(2))
	units := s.units(s.DB.DB, nil, s.store)
	const counters, each = 5, 260 // more than two pages, whose ends are within a stream
	want := []string{}
	for n := range counters {
		require.NoError(t, units.Do(context.Background(), add(fmt.Sprintf("c-%d", counters-1-n), each)))
	}
	for n := range counters {
		for version := range each {
			want = append(want, fmt.Sprintf("c-%d %d", n, version+1))
		}
	}
	n, err := s.store.Count(t.Context(), s.DB)
	require.NoError(t, err)
	require.Equal(t, int64(len(want)), n)

	got := []string{}
	require.NoError(t, s.store.Replay(t.Context(), s.DB, func(_ context.Context, e event.Envelope) error {
		got = append(got, fmt.Sprintf("%s %d", e.AggregateID, e.AggregateVersion))
		return nil
	}))
	require.Equal(t, want, got)

	errEnough := errors.New("enough")
	calls := 0
	err = s.store.Replay(t.Context(), s.DB, func(context.Context, event.Envelope) error {
		calls++
		return errEnough
	})
	require.ErrorIs(t, err, errEnough)
	require.Equal(t, 1, calls)
}

// sealer turns every bit round, as long as it has the key.
type sealer struct{ erased bool }

func (*sealer) Seal(_ context.Context, env *event.Envelope) ([]byte, string, error) {
	return turned(env.Payload), "k1", nil
}

func (s *sealer) Open(_ context.Context, env *event.Envelope, _ string) ([]byte, error) {
	if s.erased {
		return nil, event.ErrErased
	}
	return turned(env.Payload), nil
}

func turned(payload []byte) []byte {
	out := make([]byte, len(payload))
	for i, b := range payload {
		out[i] = ^b
	}
	return out
}

func TestLoadOpensSealedEvents(t *testing.T) {
	s, keys := newService(t), &sealer{}
	registry := event.NewRegistry(event.WithSealer(keys))
	event.Register[added](registry)
	s.store = streams.New(registry)
	require.NoError(t, uow.New(s.DB.DB, &uow.Config{Source: "test", Registry: registry}, s.store).Do(t.Context(), add("c-1", 2)))
	c, err := s.load(t.Context(), s.DB, "c-1")
	require.NoError(t, err)
	require.Equal(t, []event.Event{added{0}, added{1}}, c.all)

	keys.erased = true
	_, err = s.load(t.Context(), s.DB, "c-1")
	require.ErrorIs(t, err, event.ErrErased)
}
