// The drumfire client for C#: Unity, Godot with .NET, and other programs. It does not depend on Unity.
//
// Drumfire.Client is a class with exceptions and arrays. The class Native below declares the C interface of include/drumfire.h.
// A client belongs to the thread that connected it; in Unity that is the main thread.

using System;
using System.Runtime.InteropServices;
using System.Text;

namespace Drumfire
{
    /// <summary>A connection to a server. Poll it once per frame, and dispose of it at the end.</summary>
    public sealed class Client : IDisposable
    {
        ulong handle;

        /// <summary>Starts to connect to the server with this address and this public key.</summary>
        public static Client Connect(string server, string serverKey)
        {
            return Connect(new Settings { Server = server, ServerKey = serverKey });
        }

        /// <summary>Starts to connect to the server that a token from the game's backend names.</summary>
        public static Client ConnectWithToken(string token)
        {
            return Connect(new Settings { Token = token });
        }

        /// <summary>Starts to connect. The result is an event.</summary>
        public static Client Connect(Settings settings)
        {
            if (Native.drumfire_abi_version() != Native.AbiVersion)
            {
                throw new InvalidOperationException("the drumfire library and Drumfire.cs have different interface versions");
            }
            var client = new Client();
            var config = settings.ToNative();
            try
            {
                Check(Native.drumfire_client_connect(ref config, out client.handle));
            }
            finally
            {
                Marshal.FreeHGlobal(config.Server);
                Marshal.FreeHGlobal(config.ServerKey);
                Marshal.FreeHGlobal(config.Token);
                Marshal.FreeHGlobal(config.Hello);
            }
            return client;
        }

        /// <summary>Does the I/O, and waits up to this number of milliseconds for an event. Take the events afterwards.</summary>
        public void Poll(uint timeoutMs = 0)
        {
            Check(Native.drumfire_client_poll(handle, timeoutMs));
        }

        /// <summary>Takes the next event with a copy of its bytes. Returns false if there is no event until the next poll.</summary>
        public bool TryReceive(out Event taken)
        {
            Native.Event native;
            Check(Native.drumfire_client_receive(handle, out native));
            var bytes = new byte[checked((int)native.BytesCount.ToUInt64())];
            if (bytes.Length != 0)
            {
                Marshal.Copy(native.Bytes, bytes, 0, bytes.Length);
                // The finalizer frees the bytes. It must not run before they are copied.
                GC.KeepAlive(this);
            }
            taken = new Event(ref native, bytes, bytes.Length);
            return taken.Kind != EventKind.None;
        }

        /// <summary>
        /// Takes the next event without an allocation. The bytes are copied to the start of the buffer, and Event.BytesCount is
        /// their number. If they do not fit, it throws BufferTooSmall, and the next call returns the same event.
        /// </summary>
        public bool TryReceive(byte[] buffer, out Event taken)
        {
            Native.Event native;
            var room = new UIntPtr((uint)buffer.Length);
            var status = Native.drumfire_client_receive_into(handle, out native, buffer, room);
            taken = new Event(ref native, buffer, checked((int)native.BytesCount.ToUInt64()));
            Check(status);
            return taken.Kind != EventKind.None;
        }

        /// <summary>Queues a message for the server. The next Flush or Poll sends it.</summary>
        public void Send(ushort channel, byte[] bytes, Mode mode)
        {
            Send(channel, bytes, bytes.Length, new SendOptions { Mode = mode });
        }

        /// <summary>Queues the first bytes of an array. Returns the receipt number, or 0 if the options request no receipt.</summary>
        public ulong Send(ushort channel, byte[] bytes, int count, SendOptions options)
        {
            if (count < 0 || count > bytes.Length)
            {
                throw new ArgumentOutOfRangeException("count");
            }
            ulong receipt;
            Check(Native.drumfire_client_send(handle, channel, bytes, new UIntPtr((uint)count), ref options, out receipt));
            return receipt;
        }

        /// <summary>Sends all messages that were queued since the last Flush or Poll.</summary>
        public void Flush()
        {
            Check(Native.drumfire_client_flush(handle));
        }

        /// <summary>Sets the options of a channel.</summary>
        public void SetChannel(ushort channel, ChannelOptions options)
        {
            Check(Native.drumfire_client_set_channel(handle, channel, ref options));
        }

        /// <summary>Forgets the last message of a key. Call it when the thing that the key names is gone.</summary>
        public void ForgetKey(ushort channel, ulong key)
        {
            Check(Native.drumfire_client_forget_key(handle, channel, key));
        }

        /// <summary>The state of the client as of the last event that was taken.</summary>
        public State State
        {
            get
            {
                State state;
                Check(Native.drumfire_client_state(handle, out state));
                return state;
            }
        }

        /// <summary>The counters of the client and the last measurement of its path. Requests a new measurement.</summary>
        public Stats Stats
        {
            get
            {
                Stats stats;
                Check(Native.drumfire_client_stats(handle, out stats));
                return stats;
            }
        }

        /// <summary>The time of the client's clock in nanoseconds. Stats.ClockOffsetNs is relative to this clock.</summary>
        public ulong TimeNs
        {
            get
            {
                ulong time;
                Check(Native.drumfire_client_time(handle, out time));
                return time;
            }
        }

        /// <summary>The token with which this player can come back to this server, or null if the server gave none. Keep it secret.</summary>
        public string ResumeToken
        {
            get
            {
                var text = new byte[4097];
                UIntPtr needed;
                var status = Native.drumfire_client_resume_token(handle, text, new UIntPtr((uint)text.Length), out needed);
                if (status == Status.NoResumeToken)
                {
                    return null;
                }
                Check(status);
                return Encoding.UTF8.GetString(text, 0, (int)needed.ToUInt64() - 1);
            }
        }

        /// <summary>Continues on a new socket. Call it when the device changed its network or woke up.</summary>
        public void Rebind()
        {
            Check(Native.drumfire_client_rebind(handle));
        }

        /// <summary>Closes the connection with the next Flush or Poll. Disconnected is the last event.</summary>
        public void Close(uint code, string text)
        {
            var native = Native.Utf8(text);
            try
            {
                Check(Native.drumfire_client_close(handle, code, native));
            }
            finally
            {
                Marshal.FreeHGlobal(native);
            }
        }

        /// <summary>Frees the client. Closes the connection first if it is open.</summary>
        public void Dispose()
        {
            Free();
            GC.SuppressFinalize(this);
        }

        ~Client()
        {
            Free();
        }

        void Free()
        {
            // A second call passes 0, which is not a handle of any client.
            Native.drumfire_client_free(handle);
            handle = 0;
        }

        static void Check(Status status)
        {
            if (status != Status.Ok)
            {
                throw new DrumfireException(status);
            }
        }

        /// <summary>The version of the library.</summary>
        public static string Version
        {
            get { return Native.Text(Native.drumfire_version()); }
        }

        /// <summary>A description of a reason.</summary>
        public static string Describe(Reason reason)
        {
            return Native.Text(Native.drumfire_reason_text((uint)reason));
        }
    }

    /// <summary>A failed call.</summary>
    public sealed class DrumfireException : Exception
    {
        /// <summary>The status that the call returned.</summary>
        public readonly Status Status;

        internal DrumfireException(Status status)
            : base(Native.Text(Native.drumfire_status_text((int)status)) + ": " + Native.Text(Native.drumfire_last_error()))
        {
            Status = status;
        }
    }

    /// <summary>Where to connect, and how. Zero and null select the default. See DrumfireConfig in drumfire.h.</summary>
    public sealed class Settings
    {
        public string Server;
        public string ServerKey;
        public string Token;
        public bool Dev;
        public uint ReconnectWithinMs;
        public uint IdleTimeoutMs;
        public uint UnacknowledgedTimeoutMs;
        public ulong ProtocolId;
        public uint SendMemoryBytes;
        public uint ReceiveMemoryBytes;
        public uint MessageMaxBytes;
        public uint ReceiveBufferBytes;
        public string Hello;

        internal Native.Config ToNative()
        {
            return new Native.Config
            {
                Server = Native.Utf8(Server),
                ServerKey = Native.Utf8(ServerKey),
                Token = Native.Utf8(Token),
                Dev = Dev ? 1u : 0u,
                ReconnectWithinMs = ReconnectWithinMs,
                IdleTimeoutMs = IdleTimeoutMs,
                UnacknowledgedTimeoutMs = UnacknowledgedTimeoutMs,
                ProtocolId = ProtocolId,
                SendMemoryBytes = new UIntPtr(SendMemoryBytes),
                ReceiveMemoryBytes = new UIntPtr(ReceiveMemoryBytes),
                MessageMaxBytes = new UIntPtr(MessageMaxBytes),
                ReceiveBufferBytes = new UIntPtr(ReceiveBufferBytes),
                Hello = Native.Utf8(Hello),
            };
        }
    }

    /// <summary>An event. Fields that its kind does not use are zero. See DrumfireEventKind in drumfire.h.</summary>
    public struct Event
    {
        public readonly EventKind Kind;
        public readonly Reason Reason;
        public readonly Reason ReconnectReason;
        public readonly Outcome Outcome;
        public readonly uint Code;
        public readonly uint Count;
        public readonly uint WaitMs;
        public readonly ushort Channel;
        public readonly ulong Receipt;
        public readonly byte[] Bytes;
        public readonly int BytesCount;

        internal Event(ref Native.Event native, byte[] bytes, int bytesCount)
        {
            Kind = native.Kind;
            Reason = native.Reason;
            ReconnectReason = native.ReconnectReason;
            Outcome = native.Outcome;
            Code = native.Code;
            Count = native.Count;
            WaitMs = native.WaitMs;
            Channel = native.Channel;
            Receipt = native.Receipt;
            Bytes = bytes;
            BytesCount = bytesCount;
        }

        /// <summary>The bytes decoded as UTF-8.</summary>
        public string Text
        {
            get { return Encoding.UTF8.GetString(Bytes, 0, BytesCount); }
        }
    }

    /// <summary>How to send a message. Mode is required.</summary>
    [StructLayout(LayoutKind.Sequential)]
    public struct SendOptions
    {
        public Mode Mode;
        public Priority Priority;
        public SendFlags Flags;
        public uint LifetimeMs;
        public ulong Key;
    }

    /// <summary>The options of a channel.</summary>
    [StructLayout(LayoutKind.Sequential)]
    public struct ChannelOptions
    {
        public uint Weight;
        public uint Redundancy;
        public WhenFull WhenFull;
    }

    /// <summary>The counters of a client, and the last measurement of its path. See DrumfireStats in drumfire.h.</summary>
    [StructLayout(LayoutKind.Sequential)]
    public struct Stats
    {
        public ulong DatagramsReceived;
        public ulong DatagramsDropped;
        public ulong DatagramsSent;
        public ulong MessagesSent;
        public ulong MessagesResent;
        public ulong MessagesDelivered;
        public ulong PacketsLost;
        public ulong HasPath;
        public ulong TakenAtNs;
        public ulong RoundTripUs;
        public ulong JitterUs;
        public ulong RoundTripMinUs;
        public long ClockOffsetNs;
        public ulong ClockErrorNs;
        public ulong RecentPacketsSent;
        public ulong RecentPacketsLost;
        public ulong RecentPacketsReceived;
        public ulong RecentPacketsMissing;
        public ulong BandwidthBytesPerSecond;
        public ulong SendMemoryBytes;
        public ulong DatagramMaxBytes;
        public ulong KernelDropped;
    }

    [Flags]
    public enum SendFlags : uint
    {
        None = 0,
        Receipt = 1,
        Flush = 2,
    }

    /// <summary>The result of a call. See DrumfireStatus in drumfire.h.</summary>
    public enum Status : int
    {
        Ok = 0,
        NullPointer = 1,
        BadHandle = 2,
        WrongThread = 3,
        BadArgument = 4,
        TextTooLong = 5,
        BadText = 6,
        BadAddress = 7,
        BadKey = 8,
        BadToken = 9,
        System = 10,
        TooManyClients = 11,
        Closed = 12,
        Full = 13,
        TooLarge = 14,
        BufferTooSmall = 15,
        NoResumeToken = 16,
        Panicked = 17,
        NotConnected = 18,
    }

    /// <summary>The kind of an event. Connected or ConnectFailed is the first event. Disconnected is the last event and comes once.</summary>
    public enum EventKind : uint
    {
        None = 0,
        Connected = 1,
        ConnectFailed = 2,
        Message = 3,
        Receipt = 4,
        Skipped = 5,
        Reconnecting = 6,
        PathChanged = 7,
        FlightRecord = 8,
        Disconnected = 9,
        Other = 10,
        Writable = 11,
    }

    /// <summary>Why there is no connection. See DrumfireReason in drumfire.h.</summary>
    public enum Reason : uint
    {
        None = 0,
        ClosedByClient = 1,
        ClosedByServer = 2,
        ServerShutdown = 3,
        Replaced = 4,
        SessionEnded = 5,
        Overflow = 6,
        IdleTimeout = 7,
        Unacknowledged = 8,
        ProtocolViolation = 9,
        KeyLimit = 10,
        Reset = 11,
        ServerFault = 12,
        KeysInvalidated = 13,
        Unreachable = 14,
        NoAnswer = 30,
        VersionMismatch = 31,
        WrongProtocolId = 32,
        ServerFull = 33,
        Banned = 34,
        TokenExpired = 35,
        TokenForeign = 36,
        TokenUsed = 37,
        Redirect = 38,
        BadServerKey = 39,
        Refused = 40,
        LocalFault = 41,
        TokenMissing = 42,
        TokenUnreadable = 43,
        TokenUnexpected = 44,
    }

    /// <summary>The outcome of a message with a receipt.</summary>
    public enum Outcome : uint
    {
        None = 0,
        Acknowledged = 1,
        Lost = 2,
        Expired = 3,
    }

    /// <summary>The state of a client.</summary>
    public enum State : uint
    {
        Connecting = 0,
        Connected = 1,
        Reconnecting = 2,
        Closed = 3,
    }

    /// <summary>The delivery guarantee of a message.</summary>
    public enum Mode : uint
    {
        Unreliable = 1,
        UnreliableSequenced = 2,
        ReliableUnordered = 3,
        ReliableOrdered = 4,
        ReliableSequenced = 5,
        ReliableLatest = 6,
    }

    /// <summary>The priority of a message.</summary>
    public enum Priority : uint
    {
        Normal = 0,
        Urgent = 1,
        Low = 2,
        Bulk = 3,
    }

    /// <summary>The action when the connection has no memory for a message.</summary>
    public enum WhenFull : uint
    {
        Block = 0,
        DropOldest = 1,
        DropNewest = 2,
        Disconnect = 3,
    }

    /// <summary>The C interface.</summary>
    internal static class Native
    {
        internal const uint AbiVersion = 1;

#if DRUMFIRE_STATIC
        const string Library = "__Internal";
#else
        const string Library = "drumfire_ffi";
#endif

        [StructLayout(LayoutKind.Sequential)]
        internal struct Config
        {
            internal IntPtr Server;
            internal IntPtr ServerKey;
            internal IntPtr Token;
            internal uint Dev;
            internal uint ReconnectWithinMs;
            internal uint IdleTimeoutMs;
            internal uint UnacknowledgedTimeoutMs;
            internal ulong ProtocolId;
            internal UIntPtr SendMemoryBytes;
            internal UIntPtr ReceiveMemoryBytes;
            internal UIntPtr MessageMaxBytes;
            internal UIntPtr ReceiveBufferBytes;
            internal IntPtr Hello;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct Event
        {
            internal EventKind Kind;
            internal Reason Reason;
            internal Reason ReconnectReason;
            internal Outcome Outcome;
            internal uint Code;
            internal uint Count;
            internal uint WaitMs;
            internal ushort Channel;
            internal ulong Receipt;
            internal IntPtr Bytes;
            internal UIntPtr BytesCount;
        }

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status drumfire_client_connect(ref Config config, out ulong client);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status drumfire_client_poll(ulong client, uint timeoutMs);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status drumfire_client_receive(ulong client, out Event taken);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status drumfire_client_receive_into(ulong client, out Event taken, [Out] byte[] buffer, UIntPtr capacity);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status drumfire_client_send(ulong client, ushort channel, byte[] bytes, UIntPtr count, ref SendOptions options, out ulong receipt);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status drumfire_client_flush(ulong client);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status drumfire_client_set_channel(ulong client, ushort channel, ref ChannelOptions options);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status drumfire_client_forget_key(ulong client, ushort channel, ulong key);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status drumfire_client_state(ulong client, out State state);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status drumfire_client_stats(ulong client, out Stats stats);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status drumfire_client_time(ulong client, out ulong nanoseconds);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status drumfire_client_resume_token(ulong client, [Out] byte[] buffer, UIntPtr capacity, out UIntPtr needed);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status drumfire_client_rebind(ulong client);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status drumfire_client_close(ulong client, uint code, IntPtr text);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status drumfire_client_free(ulong client);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern uint drumfire_abi_version();

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern IntPtr drumfire_version();

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern IntPtr drumfire_status_text(int status);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern IntPtr drumfire_reason_text(uint reason);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern IntPtr drumfire_last_error();

        /// Returns a copy with a NUL byte at its end, or null for null. Free it with FreeHGlobal.
        internal static IntPtr Utf8(string text)
        {
            if (text == null)
            {
                return IntPtr.Zero;
            }
            var bytes = Encoding.UTF8.GetBytes(text);
            var copy = Marshal.AllocHGlobal(bytes.Length + 1);
            Marshal.Copy(bytes, 0, copy, bytes.Length);
            Marshal.WriteByte(copy, bytes.Length, 0);
            return copy;
        }

        /// Reads a UTF-8 text of the library. It is not ASCII if it quotes an argument.
        internal static string Text(IntPtr text)
        {
            var length = 0;
            while (Marshal.ReadByte(text, length) != 0)
            {
                length += 1;
            }
            var bytes = new byte[length];
            Marshal.Copy(text, bytes, 0, length);
            return Encoding.UTF8.GetString(bytes);
        }
    }
}
