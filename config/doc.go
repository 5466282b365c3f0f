// Package config gathers the configurations of all packages in one struct, fills it from the environment and opens the
// database as the framework wants it.
//
//	cfg, err := config.FromEnv()
//	db, err := config.OpenDB(ctx, cfg)
//	app, err := oncebox.New(db, broker, cfg)
//
// A broker adapter is configured by the program that chooses it, so that nothing here links it:
//
//	var cfg pulsar.Config
//	err := config.Env("ONCEBOX_PULSAR_", &cfg)
//
// # Errors
//
// Every error names the variable or the field, and all of them are reported at once.
package config
