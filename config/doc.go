// Package config gathers the configurations of all packages in one struct, fills it from the environment and opens the database with the settings
// that oncebox needs.
//
//	cfg, err := config.FromEnv()
//	db, err := config.OpenDB(ctx, cfg)
//	app, err := oncebox.New(db, broker, cfg)
//
// A service that already has a pool, a *sql.DB or a *pgxpool.Pool, calls [UseDB] or [UsePool] instead of [OpenDB], and passes the returned
// database to the constructors. The service need not use bun itself, because a unit of work also returns its transaction as *sql.Tx and as pgx.Tx.
//
// The program that chooses a broker adapter also reads the configuration of the adapter. So this package links no adapter:
//
//	var cfg pulsar.Config
//	err := config.Env("ONCEBOX_PULSAR_", &cfg)
//
// # Errors
//
// An error names the variable or the field. If several settings are wrong, one error reports all of them.
//
// Read first: config.go:Config, env.go:FromEnv, then database.go:OpenDB.
package config
