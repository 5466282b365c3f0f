package adopt

import (
	"cmp"
	"context"
	"database/sql"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// Preview is what a [Mover] would do.
type Preview struct {
	// First are the events of the first rows.
	First []event.Envelope
	// Topics has the number of rows that would be moved to each topic, by its name.
	Topics []TopicCount
	// Unmapped is how many rows no event can be made of, and Behind how many rows would stay behind them. Problems has the first 1000 of Unmapped.
	Unmapped, Behind int64
	Problems         []Problem
	// Advice is what to know before rows are moved, such as an index that is missing.
	Advice []string
	// Fault is the error with which a mover would end, although events can be made of the rows; nil if it would move them.
	Fault error
}

// TopicCount is the number of rows for a topic.
type TopicCount struct {
	Topic string `json:"topic"`
	Rows  int64  `json:"rows"`
}

// Preview reads all unsent rows, and returns the events of the first ones. It does so in a read-only transaction: the server refuses any change. Then it
// moves the first few rows in a transaction that is rolled back, because only the server knows whether the role may, and whether the mark fits.
func (m *Mover) Preview(ctx context.Context, first int) (Preview, error) {
	var p Preview
	topics, blocked := map[string]int64{}, map[string]bool{}
	see := func(scan pgsql.Scan) error {
		var r row
		if err := r.scan(m.plan, scan); err != nil {
			return err
		}
		if blocked[r.block.String] {
			p.Behind++
			return nil
		}
		env, err := r.envelope(ctx, m.plan, m.store)
		if err != nil {
			if p.Unmapped++; p.Unmapped <= shownProblems {
				p.Problems = append(p.Problems, Problem{Row: r.label.String, At: r.at, Reason: err.Error()})
			}
			if r.block.Valid {
				blocked[r.block.String] = true
			}
			return nil
		}
		topics[env.Topic]++
		if len(p.First) < first {
			p.First = append(p.First, env)
		}
		return nil
	}
	err := m.store.Handle().DB.RunInTx(ctx, &sql.TxOptions{ReadOnly: true}, func(ctx context.Context, tx bun.Tx) error {
		return pgsql.Each(pgsql.QueryPlain(ctx, tx.Tx, m.plan.look(), pgx.QueryExecModeExec), see)
	})
	for topic, n := range topics {
		p.Topics = append(p.Topics, TopicCount{topic, n})
	}
	slices.SortFunc(p.Topics, func(a, b TopicCount) int { return cmp.Compare(a.Topic, b.Topic) })
	if err != nil {
		return p, wrap("read the rows of "+m.plan.table.label(), err)
	}
	p.Fault = m.rehearse(ctx)
	p.Advice, err = m.plan.advise(ctx, m.store.Handle().DB)
	return p, err
}
