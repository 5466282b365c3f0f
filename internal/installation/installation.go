// Package installation distinguishes databases of services: each has an id, in the table oncebox_installation, which this package owns. A dump, a
// copy and a replica have the id of their origin, because they take its place.
package installation

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
)

const (
	read   = `SELECT id::text FROM {schema}.oncebox_installation`
	create = `INSERT INTO {schema}.oncebox_installation (id) VALUES (gen_random_uuid()) ON CONFLICT DO NOTHING`

	// take is what an operator runs, with a literal, when a database has taken the place of another one.
	take = `INSERT INTO {schema}.oncebox_installation (id) VALUES (%s) ON CONFLICT (one) DO UPDATE SET id = excluded.id`
)

// ID returns the id, which the first call makes.
func ID(ctx context.Context, r *pgsql.Runner, db bun.IDB) (id string, err error) {
	if id, err = Known(ctx, r, db); err != nil || id != "" {
		return id, err
	}
	if _, err := r.Exec(ctx, db, create); err != nil {
		return "", fmt.Errorf("installation: make an id for this database: %w", pgerr.Explain(err))
	}
	return Known(ctx, r, db)
}

// Known returns the id, "" if there is none yet.
func Known(ctx context.Context, r *pgsql.Runner, db bun.IDB) (id string, err error) {
	err = r.QueryRow(ctx, db, read, nil, &id)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("installation: read the id of this database: %w", pgerr.Explain(err))
	}
	return id, nil
}

// TakeOver returns the statement that gives this database the id of another one, whose place it has taken.
func TakeOver(r *pgsql.Runner, id string) string {
	return fmt.Sprintf(r.Text(take), "'"+strings.ReplaceAll(id, "'", "''")+"'")
}
