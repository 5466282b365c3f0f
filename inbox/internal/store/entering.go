package store

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// Entering holds the arguments and the answer of the statement enterAll of package inbox.
type Entering struct {
	Keys             []pgtype.UUID
	Tenants, Sources []string // a single value if all messages have the same
	Locks            []int64
	at               map[entered]int // where a message is in the batch

	Xid     string
	Stopped []int64 // locks of the keys that do not flow
}

// entered identifies a message among those of one consumer.
type entered struct {
	key            uuid.UUID
	tenant, source string // empty if all messages have the same
}

// MakeEntering sorts messages and locks, so that two batches with common messages or keys never deadlock. A second copy of a message within
// the batch is left out.
func MakeEntering(ids []Identity) *Entering {
	first := ids[0]
	mixed := slices.ContainsFunc(ids, func(id Identity) bool { return id.Tenant != first.Tenant || id.Source != first.Source })
	e := &Entering{at: make(map[entered]int, len(ids)), Locks: make([]int64, 0, len(ids))}
	order := make([]int, 0, len(ids))
	for n, id := range ids {
		m := entered{key: id.Key}
		if mixed {
			m.tenant, m.source = id.Tenant, id.Source
		}
		if _, copied := e.at[m]; copied {
			continue
		}
		e.at[m] = n
		order = append(order, n)
		if lock, ordered := id.Lock.(int64); ordered {
			e.Locks = append(e.Locks, lock)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := &ids[a], &ids[b]
		return cmp.Or(bytes.Compare(x.Key[:], y.Key[:]), strings.Compare(x.Tenant, y.Tenant), strings.Compare(x.Source, y.Source))
	})
	slices.Sort(e.Locks)
	e.Locks = slices.Compact(e.Locks)
	e.Keys = make([]pgtype.UUID, len(order))
	for i, n := range order {
		e.Keys[i] = pgtype.UUID{Bytes: ids[n].Key, Valid: true}
	}
	if !mixed {
		e.Tenants, e.Sources = []string{first.Tenant}, []string{first.Source}
		return e
	}
	e.Tenants, e.Sources = make([]string, len(order)), make([]string, len(order))
	for i, n := range order {
		e.Tenants[i], e.Sources[i] = ids[n].Tenant, ids[n].Source
	}
	return e
}

// Read reads the answer. It reuses the variables for all rows and scans without a callback per row, because every message passes here.
func (e *Entering) Read(rows *pgsql.Result, became []Entry) error {
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
			became[e.at[entered{key.Bytes, tenant.String, source.String}]] = Fresh
		case stopped.Valid:
			e.Stopped = append(e.Stopped, stopped.Int64)
		default:
			e.Xid = xid.String
		}
	}
	return rows.Err()
}
