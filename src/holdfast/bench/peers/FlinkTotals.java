// The total per user in Flink's Java API: exactly once, its state in RocksDB, two slots.
//
// Compiled by `make bench-kafka`; arguments are the servers, two topics and a folder for the state.

import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.stream.Stream;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.serialization.AbstractDeserializationSchema;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

public class FlinkTotals {
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class Edit {
        public String user;
        public long diff;
    }

    public static class Total {
        public String user;
        public long total;
    }

    /** Running total per user, a record at a time. */
    public static class Totals extends KeyedProcessFunction<String, Edit, Total> {
        private transient ValueState<Long> total;

        @Override
        public void open(OpenContext context) {
            total = getRuntimeContext()
                    .getState(new ValueStateDescriptor<>("total", Long.class));
        }

        @Override
        public void processElement(Edit edit, Context context, Collector<Total> out)
                throws IOException {
            Long before = total.value();
            Total row = new Total();
            row.user = edit.user;
            row.total = (before == null ? 0 : before) + edit.diff;
            total.update(row.total);
            out.collect(row);
        }
    }

    public static class Decode extends AbstractDeserializationSchema<Edit> {
        private transient ObjectMapper mapper;

        @Override
        public void open(InitializationContext context) {
            mapper = new ObjectMapper();
        }

        @Override
        public Edit deserialize(byte[] record) throws IOException {
            return mapper.readValue(record, Edit.class);
        }
    }

    public static class Encode implements SerializationSchema<Total> {
        private transient ObjectMapper mapper;

        @Override
        public void open(InitializationContext context) {
            mapper = new ObjectMapper();
        }

        @Override
        public byte[] serialize(Total total) {
            try {
                return mapper.writeValueAsBytes(total);
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }
    }

    public static class Key implements SerializationSchema<Total> {
        @Override
        public byte[] serialize(Total total) {
            return total.user.getBytes(StandardCharsets.UTF_8);
        }
    }

    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0], source = arguments[1], target = arguments[2];
        Path state = Path.of(arguments[3]).toAbsolutePath();
        Files.createDirectories(state);
        Configuration settings = new Configuration();
        settings.setString("state.backend.type", "rocksdb");
        settings.setString("execution.checkpointing.incremental", "true");
        settings.setString("execution.checkpointing.interval", "5 s");
        settings.setString("execution.checkpointing.dir", state.toUri().toString());
        settings.setString(
                "execution.checkpointing.externalized-checkpoint-retention",
                "RETAIN_ON_CANCELLATION");
        String last = lastCheckpoint(state);
        if (last != null) {
            settings.setString("execution.state-recovery.path", last);
        }
        StreamExecutionEnvironment flow =
                StreamExecutionEnvironment.getExecutionEnvironment(settings);
        flow.setParallelism(2);
        flow.getConfig().enableObjectReuse();

        KafkaSource<Edit> edits = KafkaSource.<Edit>builder()
                .setBootstrapServers(servers)
                .setTopics(source)
                .setGroupId(target)
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setValueOnlyDeserializer(new Decode())
                .build();
        KafkaSink<Total> totals = KafkaSink.<Total>builder()
                .setBootstrapServers(servers)
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix(target)
                .setProperty("transaction.timeout.ms", "600000")
                .setProperty("compression.type", "lz4")
                .setProperty("linger.ms", "20")
                .setProperty("batch.size", "262144")
                .setRecordSerializer(KafkaRecordSerializationSchema.<Total>builder()
                        .setTopic(target)
                        .setKeySerializationSchema(new Key())
                        .setValueSerializationSchema(new Encode())
                        .build())
                .build();
        flow.fromSource(edits, WatermarkStrategy.noWatermarks(), "edits")
                .uid("edits")
                .keyBy(edit -> edit.user)
                .process(new Totals())
                .uid("totals")
                .sinkTo(totals)
                .uid("out");
        flow.execute(target);
    }

    /** A checkpoint is complete when its metadata are there. */
    private static String lastCheckpoint(Path state) throws IOException {
        try (Stream<Path> found = Files.walk(state)) {
            return found.filter(each -> each.endsWith("_metadata"))
                    .max(Comparator.comparing(each -> each.toFile().lastModified()))
                    .map(each -> each.getParent().toUri().toString())
                    .orElse(null);
        }
    }
}
