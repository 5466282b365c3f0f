package main

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
)

// publisher answers with an error, or none.
type publisher struct{ err error }

func (p publisher) Publish(context.Context, []event.Envelope) error { return p.err }

func TestReceiptsTellTheBacklogFromSingleMessages(t *testing.T) {
	r := newReceipts(publisher{}, 100)
	r.expect("single")
	r.commit("single")
	require.NoError(t, r.Publish(t.Context(), []event.Envelope{{AggregateID: "a"}, {AggregateID: "single"}, {AggregateID: "a"}}))
	require.Equal(t, 98, r.backlog())
	require.NoError(t, r.underWay(t.Context()))
	took, err := r.wait(t.Context(), "single")
	require.NoError(t, err)
	require.GreaterOrEqual(t, took, 0.0)
}

func TestARefusalIsNoReceipt(t *testing.T) {
	r := newReceipts(publisher{errors.New("refused")}, 100)
	r.expect("single")
	r.commit("single")
	require.Error(t, r.Publish(t.Context(), []event.Envelope{{AggregateID: "single"}}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := r.wait(ctx, "single")
	require.ErrorIs(t, err, errWrong)
}
