package inbox

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// entering is what [enterAll] is asked and answers.
type entering struct {
	keys             []pgtype.UUID
	tenants, sources []string // one value if it is that of all
	locks            []int64
	at               map[entered]int // where a message is in the batch

	xid     string
	stopped []int64 // keys that do not flow
}

// entered is what tells messages of one consumer apart.
type entered struct {
	key            uuid.UUID
	tenant, source string // empty if they are that of all
}

// makeEntering sorts messages and locks, so that batches which have some in common never wait for each other in a circle. A
// copy of a message that is there already is left out.
func makeEntering(ids []identity) *entering {
	first := ids[0]
	mixed := slices.ContainsFunc(ids, func(id identity) bool { return id.tenant != first.tenant || id.source != first.source })
	e := &entering{at: make(map[entered]int, len(ids)), locks: make([]int64, 0, len(ids))}
	order := make([]int, 0, len(ids))
	for n, id := range ids {
		m := entered{key: id.key}
		if mixed {
			m.tenant, m.source = id.tenant, id.source
		}
		if _, copied := e.at[m]; copied {
			continue
		}
		e.at[m] = n
		order = append(order, n)
		if lock, ordered := id.lock.(int64); ordered {
			e.locks = append(e.locks, lock)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := &ids[a], &ids[b]
		return cmp.Or(bytes.Compare(x.key[:], y.key[:]), strings.Compare(x.tenant, y.tenant), strings.Compare(x.source, y.source))
	})
	slices.Sort(e.locks)
	e.locks = slices.Compact(e.locks)
	e.keys = make([]pgtype.UUID, len(order))
	for i, n := range order {
		e.keys[i] = pgtype.UUID{Bytes: ids[n].key, Valid: true}
	}
	if !mixed {
		e.tenants, e.sources = []string{first.tenant}, []string{first.source}
		return e
	}
	e.tenants, e.sources = make([]string, len(order)), make([]string, len(order))
	for i, n := range order {
		e.tenants[i], e.sources[i] = ids[n].tenant, ids[n].source
	}
	return e
}

// rowScanner is what the rows of pgx and of database/sql have in common.
type rowScanner interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
}

// read reads the answer. The variables are those of all rows, and without a function for each: it is the way of every message.
func (e *entering) read(rows rowScanner, became []entry) error {
	var (
		key                 pgtype.UUID
		tenant, source, xid pgtype.Text
		stopped             pgtype.Int8
	)
	for rows.Next() {
		if err := rows.Scan(&key, &tenant, &source, &stopped, &xid); err != nil {
			return err
		}
		switch {
		case key.Valid:
			became[e.at[entered{key.Bytes, tenant.String, source.String}]] = fresh
		case stopped.Valid:
			e.stopped = append(e.stopped, stopped.Int64)
		default:
			e.xid = xid.String
		}
	}
	return rows.Err()
}
