package outbox

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
)

// A transaction of unknown outcome is asked about again, as long as there may be an answer.
func TestRecordedAsksAgain(t *testing.T) {
	var answer map[string]string
	var failure error
	asked := 0
	r := newRecorded(&Config{}, func(context.Context, []string) (map[string]string, error) {
		asked++
		return answer, failure
	})
	added := func(xids ...string) {
		for _, xid := range xids {
			r.added(xid, []event.Envelope{{Topic: "order", Sequence: 1}})
		}
	}
	added("1", "2", "3", "4")
	answer = map[string]string{"1": "committed", "2": "aborted", "3": "in progress", "4": ""}
	r.collected(t.Context())
	require.Equal(t, []string{"3"}, r.waiting())
	failure = errors.New("the server is away")
	answer = nil
	r.collected(t.Context())
	require.Equal(t, []string{"3"}, r.waiting())
	failure = &pgconn.PgError{Code: codeFutureXID}
	r.collected(t.Context())
	require.Empty(t, r.waiting(), "this server does not know the transaction")
	r.collected(t.Context())
	require.Equal(t, 3, asked, "nothing waits")
}

// Where nobody collects metrics the transactions are asked for when they are many, and forgotten if there is no answer.
func TestRecordedIsBounded(t *testing.T) {
	r := newRecorded(&Config{}, func(context.Context, []string) (map[string]string, error) {
		return nil, errors.New("the server is away")
	})
	for n := range manyOpen {
		require.Len(t, r.waiting(), n)
		r.added(fmt.Sprint(n), []event.Envelope{{Topic: "order", Sequence: 1}})
	}
	await.True(t, func() bool { return len(r.waiting()) == 0 }, "they are forgotten")
}
