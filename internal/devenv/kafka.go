package devenv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// KafkaServer is a running Apache Kafka.
type KafkaServer struct {
	server

	// URL is the address for clients, host:port.
	URL string
}

const (
	kafkaVersion = "4.1.0"
	// kafkaProject is a project of Maven that has Kafka's server, its tools and a log as dependencies: there is no distribution in Maven's repository.
	kafkaProject = `<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>oncebox</groupId><artifactId>kafka</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>` + kafkaVersion + `</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>` + kafkaVersion + `</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>2.0.17</version></dependency>
</dependencies></project>
`
	mavenCopyDependencies = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
)

// Kafka finds the Kafka of KAFKA_URL, or starts one broker that is its own controller (KRaft). The caller stops it.
func Kafka(ctx context.Context, options *Options) (*KafkaServer, error) {
	opts := withDefaults(options)
	if address := os.Getenv("KAFKA_URL"); address != "" && !opts.Own {
		k := &KafkaServer{URL: address}
		if err := k.listens(ctx); err != nil {
			return nil, fmt.Errorf("devenv: the Kafka of KAFKA_URL does not answer; start it, or unset KAFKA_URL to have one started: %w", err)
		}
		opts.sayf("Kafka: KAFKA_URL, %s", k.URL)
		return k, nil
	}
	java, err := provideJava(ctx, opts)
	if err != nil {
		return nil, err
	}
	home, err := fetchKafka(ctx, opts)
	if err != nil {
		return nil, err
	}
	k := &KafkaServer{server: server{name: "kafka", timeout: opts.StartTimeout}}
	// The watchdog uses SIGKILL, because an orderly shutdown takes seconds and the data is removed anyway.
	if err := k.prepare("KILL"); err != nil {
		return nil, err
	}
	if err := k.serve(ctx, home, filepath.Join(java, "bin", "java")); err != nil {
		return nil, errors.Join(err, k.Stop())
	}
	opts.sayf("Kafka: libraries %s, %s", home, k.URL)
	return k, nil
}

// fetchKafka returns the folder with Kafka's libraries in the user's cache folder. The first call downloads them.
func fetchKafka(ctx context.Context, opts Options) (string, error) {
	return cached(ctx, "apache-kafka-"+kafkaVersion, opts, func(w *workshop) error {
		if err := provideMaven(ctx, w, opts, "Kafka"); err != nil {
			return err
		}
		opts.sayf("Kafka: not in the user's cache folder, fetching %s with Maven (54 MB, once)", kafkaVersion)
		pom := filepath.Join(w.folder, "pom.xml")
		if err := os.WriteFile(pom, []byte(kafkaProject), 0o600); err != nil {
			return fmt.Errorf("devenv: fetch Kafka: %w", err)
		}
		if err := w.maven(ctx, opts, "--file", pom, mavenCopyDependencies, "-DoutputDirectory="+filepath.Join(w.folder, unpacked)); err != nil {
			return fmt.Errorf("devenv: fetch Kafka: %w", err)
		}
		return nil
	})
}

// serve formats a folder for the data, and starts a broker on free ports.
func (k *KafkaServer) serve(ctx context.Context, home, java string) error {
	var ports [2]string
	for i := range ports {
		port, err := k.takePort()
		if err != nil {
			return err
		}
		ports[i] = "127.0.0.1:" + strconv.Itoa(port)
	}
	k.URL = ports[0]
	conf := filepath.Join(k.folder, "server.properties")
	if err := os.WriteFile(conf, []byte(k.settings(ports[1])), 0o600); err != nil {
		return fmt.Errorf("devenv: write Kafka's configuration: %w", err)
	}
	program := func(class string, args ...string) *exec.Cmd {
		cmd := exec.Command(java, append([]string{
			"-Xms128m", "-Xmx512m", "-XX:TieredStopAtLevel=1", // optimized code takes long to compile, and tests end before it pays
			"-Djava.io.tmpdir=" + k.folder, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", filepath.Join(home, "*"), class,
		}, args...)...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + k.folder}
		return cmd
	}
	err := k.run(ctx, program("kafka.tools.StorageTool", "format", "--standalone", "--cluster-id", "b25jZWJveC10ZXN0cy0xMA", "--config", conf))
	if err != nil {
		return err
	}
	k.command = func() *exec.Cmd { return program("kafka.Kafka", conf) }
	k.ready = k.listens
	return k.start(ctx)
}

// settings returns the configuration. One broker can have no copies, and a group is not to wait for consumers that do not come.
func (k *KafkaServer) settings(controller string) string {
	return strings.Join([]string{
		"process.roles=broker,controller", "node.id=1",
		"controller.quorum.bootstrap.servers=" + controller,
		"listeners=PLAINTEXT://" + k.URL + ",CONTROLLER://" + controller,
		"advertised.listeners=PLAINTEXT://" + k.URL,
		"controller.listener.names=CONTROLLER",
		"listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
		"log.dirs=" + filepath.Join(k.folder, "data"),
		"offsets.topic.replication.factor=1", "offsets.topic.num.partitions=4",
		"transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=1",
		"share.coordinator.state.topic.replication.factor=1", "share.coordinator.state.topic.min.isr=1",
		"group.initial.rebalance.delay.ms=0", "group.min.session.timeout.ms=1000", "auto.create.topics.enable=false",
	}, "\n") + "\n"
}

// listens returns nil if the broker accepts connections, which it does once it has joined its cluster.
func (k *KafkaServer) listens(ctx context.Context) error {
	first, _, _ := strings.Cut(k.URL, ",")
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", first)
	if err != nil {
		return err
	}
	return conn.Close()
}
