// Package installation distinguishes databases of services: each has an id, in the row of oncebox_settings. A dump, a
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
	read   = `SELECT coalesce(installation::text, '') FROM {schema}.oncebox_settings`
	create = `UPDATE {schema}.oncebox_settings SET installation = gen_random_uuid() WHERE installation IS NULL`

	// take is the statement for an operator when a database has taken the place of another one. The id is
	// inserted as a literal.
	take = `UPDATE {schema}.oncebox_settings SET installation = %s`
)

// ID returns the id of the database. The first call makes it.
func ID(ctx context.Context, r *pgsql.Runner, db bun.IDB) (id string, err error) {
	if id, err = Known(ctx, r, db); err != nil || id != "" {
		return id, err
	}
	if _, err := r.Exec(ctx, db, create); err != nil {
		return "", fmt.Errorf("installation: make an id for this database: %w", pgerr.Explain(err))
	}
	if id, err = Known(ctx, r, db); err == nil && id == "" {
		err = errors.New("installation: oncebox_settings has no row: restore it from a backup, or from the database that this one is a copy of")
	}
	return id, err
}

// Known returns the id of the database, "" if there is none yet.
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

// TakeOver returns the statement that gives this database the id of the database whose place it has taken.
func TakeOver(r *pgsql.Runner, id string) string {
	return fmt.Sprintf(r.Text(take), "'"+strings.ReplaceAll(id, "'", "''")+"'")
}
