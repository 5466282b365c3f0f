package inbox_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/operator"
)

// Whatever an operator asks for among very many, no table is read from end to end.
func TestOperatorsReadByIndexes(t *testing.T) {
	w := newWorld(t)
	w.exec(fmt.Sprintf(deadRows, 30_000))
	w.exec(`UPDATE inbox_dead SET consumer = 'c' || seq % 50, tenant_id = 't' || seq % 50, topic = 'o' || seq % 50, event_type = 'e' || seq % 50,
		key_lock = seq, died_at = now() - seq * interval '10 s'`)
	w.exec(`INSERT INTO inbox_parked (consumer, key_lock, message_key, tenant_id, source, message_id, event_type, topic, content_type, payload)
		SELECT consumer, seq / 3, message_key, tenant_id, source, message_id, event_type, topic, content_type, payload FROM inbox_dead`)
	w.exec(`INSERT INTO inbox_key (consumer, key_lock, tenant_id, state, due_at)
		SELECT DISTINCT consumer, key_lock, tenant_id, 'WAITING', now() FROM inbox_parked`)
	for _, table := range []string{"inbox_dead", "inbox_parked", "inbox_key"} {
		w.exec("VACUUM ANALYZE " + table)
	}
	page, err := w.box.Dead(t.Context(), operator.DeadFilter{}, nil, 3)
	require.NoError(t, err)
	noSeqScan := func(what, plan string, err error) {
		require.NoError(t, err)
		require.NotContains(t, plan, "Seq Scan on inbox", "%s", what)
	}
	for _, filter := range []operator.DeadFilter{
		{}, {Consumer: "c7"}, {TenantID: "t7"}, {Topic: "o7"}, {Type: "e7"}, {DiedBefore: time.Now().Add(-48 * time.Hour)},
	} {
		for _, after := range []*inbox.DeadLetter{nil, &page[2]} {
			plan, err := w.box.ExplainDead(t.Context(), filter, after, 100)
			noSeqScan(fmt.Sprintf("%+v", filter), plan, err)
		}
	}
	errorsPlan, err := w.box.ExplainDeadErrors(t.Context(), 100)
	noSeqScan("errors", errorsPlan, err)
	plan, err := w.box.ExplainPick(t.Context(), 7, 7)
	noSeqScan("pick", plan, err)
	require.Contains(t, plan, "inbox_dead_key")
	require.NotContains(t, plan, "Sort")
	w.exec(`INSERT INTO inbox (message_key, consumer, tenant_id, source) SELECT message_key, consumer, tenant_id, source FROM inbox_dead; ANALYZE inbox`)
	var keys []operator.MessageRef
	for _, d := range page {
		keys = append(keys, d.Key)
	}
	plan, err = w.box.ExplainMove(t.Context(), keys, []int64{1, 2, 3})
	noSeqScan("move", plan, err)
	plan, err = w.box.ExplainStats(t.Context(), "c7")
	noSeqScan("statistics", plan, err)
	require.Contains(t, plan, "inbox_parked_age")
	require.NotContains(t, plan, "JIT")
}
