package event_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
)

// reverser seals by turning payloads round. Its field is the id of its key.
type reverser struct {
	keyID string
	err   error
	saw   event.Envelope
}

func reversed(b []byte) []byte {
	out := bytes.Clone(b)
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}

func (r *reverser) Seal(_ context.Context, env *event.Envelope) ([]byte, string, error) {
	r.saw = *env
	return reversed(env.Payload), r.keyID, r.err
}

func (r *reverser) Open(_ context.Context, env *event.Envelope, keyID string) ([]byte, error) {
	r.saw = *env
	if keyID != r.keyID {
		return nil, event.ErrErased
	}
	return reversed(env.Payload), r.err
}

func sealedBy(s event.Sealer) *event.Registry {
	r := event.NewRegistry(event.WithSealer(s))
	event.Register[placed](r, event.WithVersion(2), event.WithUpcaster(1, func(b []byte) ([]byte, error) {
		return bytes.Replace(b, []byte("sum"), []byte("total"), 1), nil
	}))
	return r
}

func TestOpenUndoesSeal(t *testing.T) {
	sealer := &reverser{keyID: "k1"}
	r := sealedBy(sealer)
	plain := anEnvelope()
	plain.Payload = []byte(`{"order_id":"1","total":2}`)
	before := plain.Metadata.Clone()
	env := plain
	require.NoError(t, r.Seal(t.Context(), &env))
	require.Equal(t, plain, sealer.saw, "it gets the whole envelope")
	require.Equal(t, before, plain.Metadata, "somebody else's metadata is not changed")

	require.Equal(t, event.ContentTypeSealed, env.ContentType)
	require.Equal(t, "k1", env.Metadata[event.SealedKey])
	require.Equal(t, event.ContentTypeJSON, env.Metadata[event.SealedContentType])
	require.Equal(t, `}2:"latot","1":"di_redro"{`, string(env.Payload))
	require.NoError(t, env.Validate())

	sealed := env
	require.NoError(t, r.Seal(t.Context(), &env))
	require.Equal(t, sealed, env, "it is sealed already")

	opened, err := r.Open(t.Context(), &env)
	require.NoError(t, err)
	require.Equal(t, &plain, opened)
	require.Equal(t, sealed, env, "what was opened is a copy")
	want := plain
	want.Payload = sealed.Payload
	require.Equal(t, want, sealer.saw, "it gets what Seal got, but for the payload")

	again, err := r.Open(t.Context(), opened)
	require.NoError(t, err)
	require.Same(t, opened, again)
}

func TestSealedEventsAreOpenedBeforeTheUpcasters(t *testing.T) {
	r := sealedBy(&reverser{keyID: "k1"})
	env := event.Envelope{Type: "order.placed", SchemaVersion: 1, Payload: []byte(`{"order_id":"1","sum":2}`)}
	require.NoError(t, r.Seal(t.Context(), &env))
	_, err := r.Decode(&env)
	var decode *event.DecodeError
	require.ErrorAs(t, err, &decode)
	require.ErrorContains(t, err, `sealed with key "k1": call Registry.Open before`)

	opened, err := r.Open(t.Context(), &env)
	require.NoError(t, err)
	ev, err := r.Decode(opened)
	require.NoError(t, err)
	require.Equal(t, placed{"1", 2}, ev)
}

func TestUnsealedEvents(t *testing.T) {
	old := event.Envelope{Type: "order.placed", Payload: []byte(`{"order_id":"1"}`)}
	opened, err := sealedBy(&reverser{keyID: "k1"}).Open(t.Context(), &old)
	require.NoError(t, err)
	require.Same(t, &old, opened, "it was stored before there was a sealer")

	without := event.NewRegistry()
	env := old
	require.NoError(t, without.Seal(t.Context(), &env))
	require.Equal(t, old, env)

	env.Metadata = event.Metadata{event.SealedKey: "of another event", "a": "1"}
	require.NoError(t, sealedBy(&reverser{}).Seal(t.Context(), &env), "the sealer wants it to stay as it is")
	require.Equal(t, old.Payload, env.Payload)
	require.Equal(t, event.Metadata{"a": "1"}, env.Metadata)

	env.Metadata = event.Metadata{event.SealedKey: "of another event", "a": "1"}
	require.NoError(t, without.Seal(t.Context(), &env))
	require.Equal(t, event.Metadata{"a": "1"}, env.Metadata)
}

func TestSealerThatFails(t *testing.T) {
	env := event.Envelope{ID: "7", Type: "order.placed", Payload: []byte(`{}`)}
	sealer := &reverser{keyID: "k1"}
	r := sealedBy(sealer)
	sealed := env
	require.NoError(t, r.Seal(t.Context(), &sealed))

	sealer.err = errors.New("the vault is down")
	kept := env
	err := r.Seal(t.Context(), &env)
	require.ErrorIs(t, err, sealer.err)
	require.ErrorContains(t, err, "event: seal order.placed 7: ")
	require.Equal(t, kept, env, "nothing is half sealed")
	_, err = r.Open(t.Context(), &sealed)
	require.ErrorIs(t, err, sealer.err)
	require.ErrorContains(t, err, "event: open order.placed 7: ")
	require.NotErrorIs(t, err, event.ErrErased)

	sealer.keyID = "k2"
	_, err = r.Open(t.Context(), &sealed)
	require.ErrorIs(t, err, event.ErrErased)

	_, err = event.NewRegistry().Open(t.Context(), &sealed)
	var decode *event.DecodeError
	require.ErrorAs(t, err, &decode)
	require.ErrorContains(t, err, "event.WithSealer")

	for _, keyID := range []string{"\x00", "\xff", strings.Repeat("x", event.MaxMetadata)} {
		env := event.Envelope{Type: "order.placed"}
		require.ErrorIs(t, sealedBy(&reverser{keyID: keyID}).Seal(t.Context(), &env), event.ErrInvalid)
	}
}
