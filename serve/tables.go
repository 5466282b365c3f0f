package serve

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/uptrace/bun"
)

// tablesLock is taken for as long as a script of [Tables] runs, so that processes that start together take turns: CREATE TABLE IF NOT EXISTS fails if
// another session makes the same table at the same time.
const tablesLock = `SELECT pg_advisory_xact_lock(hashtextextended('oncebox: serve.Tables', 0))`

// Tables returns a [Service].Migrate that runs a script of SQL in one transaction: all of it or nothing. The script runs at each start of each process,
// so every statement must do nothing the second time, such as CREATE TABLE IF NOT EXISTS and ALTER TABLE ... ADD COLUMN IF NOT EXISTS. Processes that
// start together run it one after the other. A service that needs numbered steps calls a tool for migrations in its Service.Migrate instead.
func Tables(script string) func(ctx context.Context, db *bun.DB) error {
	return func(ctx context.Context, db *bun.DB) error {
		err := db.RunInTx(ctx, &sql.TxOptions{}, func(ctx context.Context, tx bun.Tx) error {
			if _, err := tx.Tx.ExecContext(ctx, tablesLock); err != nil {
				return err
			}
			_, err := tx.Tx.ExecContext(ctx, script)
			return err
		})
		if err != nil {
			return fmt.Errorf("serve: Tables: run the script of the service's own tables with the role of ONCEBOX_DATABASE_URL: %w", err)
		}
		return nil
	}
}
