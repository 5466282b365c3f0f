// Package config gathers the configurations of all packages in one struct, fills it from the environment and opens the
// database as the framework wants it.
//
//	cfg, err := config.FromEnv()
//	db, err := config.OpenDB(ctx, cfg)
//	app, err := oncebox.New(db, broker, cfg)
//
// A service that has a pool already, a *sql.DB or a *pgxpool.Pool, passes it to [UseDB] or [UsePool] in place of [OpenDB]. Pass the returned
// database to the constructors. A service does not need bun for it: a unit of work hands out its transaction as *sql.Tx and as pgx.Tx too.
//
// A broker adapter is configured by the program that chooses it, so that nothing here links it:
//
//	var cfg pulsar.Config
//	err := config.Env("ONCEBOX_PULSAR_", &cfg)
//
// # Errors
//
// Every error names the variable or the field, and all of them are reported at once.
//
// Read first: config.go:Config, env.go:FromEnv, then database.go:OpenDB.
package config
